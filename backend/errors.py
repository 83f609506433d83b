"""What the engine refuses, and what must never happen."""


class BadConfig(ValueError):
    """A setting that cannot work; the message names the key, the value and the rule."""


class Refused(Exception):
    """A request that is turned away at submission; the message says why."""


class DuplicateId(Exception):
    """A live request with this id exists; that one goes on."""


class EngineBroken(AssertionError):
    """An invariant of the engine does not hold: a defect of Batchyard, never of a policy."""
