"""What the Hugging Face hub is asked before transformers is: it would retry for half a minute where nothing answers."""

from __future__ import annotations

from huggingface_hub import HfApi, try_to_load_from_cache
from huggingface_hub.errors import RepositoryNotFoundError

from backend.errors import BadConfig

TIMEOUT_S = 5


def check_hub(name: str) -> None:
    """`name` is no folder. Raises BadConfig if it is neither in the hub's cache on this machine nor in the hub."""
    if isinstance(try_to_load_from_cache(name, "config.json"), str):
        return
    try:
        HfApi().model_info(name, timeout=TIMEOUT_S)
    except RepositoryNotFoundError as error:
        raise BadConfig(f"model {name}: no folder here, and the hub knows no such model") from error
    except Exception as error:  # of whichever HTTP library the hub's client is built on
        reason = str(error).splitlines()[0]
        raise BadConfig(f"model {name}: no folder here, not downloaded before, and no hub answers: {reason}") from error
