from policies.api import PriorityPolicy


class ShortestPrompt(PriorityPolicy):
    """The shortest prompt goes first; each second of waiting counts for `forgive` tokens."""

    def __init__(self, forgive=0.0):
        super().__init__()
        self.forgive = forgive

    def key(self, request, now):
        return (request.prompt_tokens + self.forgive * request.arrival / 1e12,)
