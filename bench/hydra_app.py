"""``batchyard run``: Hydra in front of `bench.run`, and what success and failure look like on the command line."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hydra.conf import HydraConf
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

import conf
from bench import config, plugins, terminal
from bench.complaints import FAILED, INTERRUPTED, complain, one_line
from bench.errors import BadInput
from bench.hydra_compat import TaskFunction, ends_failed_sweeps, hydra_main
from bench.output import ERROR
from bench.run import Job, objective, run

SERIAL = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"


class JobFailed(Exception):
    """One job of a sweep failed and said so; the others go on."""

    def __init__(self, message: str, sweep: Path) -> None:
        super().__init__(message, sweep)
        self.sweep = sweep


def main(arguments: Sequence[str]) -> int:
    """Exit code 0, 1 if a run failed, 2 for bad input."""
    return command(arguments, task, "config")


def command(arguments: Sequence[str], task: TaskFunction, config_name: str) -> int:
    """`task` by Hydra, on the configuration that ``conf/<config_name>.yaml`` and `arguments` compose; the exit code."""
    began = time.time()
    code = 0
    with _command_line(arguments):
        try:
            plugins.register()
            config.register()
            hydra_main(task, f"pkg://{conf.__name__}", config_name)()
        except JobFailed as failed:  # it has said so itself
            code = FAILED
            if not ends_failed_sweeps():
                terminal.show_sweep(failed.sweep, since=began)
        except BrokenPipeError:  # `| head` has seen enough; what is still to be flushed goes nowhere
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except KeyboardInterrupt:
            code = INTERRUPTED
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else FAILED
        except Exception as error:  # not from a job: jobs speak for themselves
            plain = isinstance(error, ValueError) and not isinstance(error, OmegaConfBaseException)
            code = complain(BadInput(str(error)) if plain else error)
    return code


def task(settings: DictConfig) -> float | None:
    """One job, in this process or in a worker. The result is what a sweeper like Optuna optimises."""
    hydra = HydraConfig.get()
    alone = hydra.mode is RunMode.RUN
    shown = alone or hydra.launcher._target_ == SERIAL
    with the_job(hydra) as job:
        with terminal.progress(" ".join(hydra.overrides.task), shown=shown) as progress:
            summary = run(settings, job, progress)
        if alone:
            terminal.show_run(summary, job.folder)
        return objective(settings, summary)


@contextmanager
def the_job(hydra: HydraConf) -> Iterator[Job]:
    """The job at hand. One that fails says so; on its own it ends the program, in a sweep the others go on."""
    job = Job(Path(hydra.runtime.output_dir), Path(hydra.runtime.cwd), _choices(hydra), list(hydra.overrides.task))
    (job.folder / ERROR).unlink(missing_ok=True)
    try:
        yield job
    except Exception as error:
        if hydra.mode is RunMode.RUN:
            raise SystemExit(complain(error)) from error
        label = " ".join(hydra.overrides.task)
        (job.folder / ERROR).write_text("".join(traceback.format_exception(error)), encoding="utf-8")
        print(f"job {hydra.job.num} ({label}) failed: {one_line(error)}", file=sys.stderr)
        raise JobFailed(one_line(error), Path(hydra.sweep.dir)) from None


def _choices(hydra: HydraConf) -> dict[str, str]:
    """Option by group, without Hydra's own and the schemas; the class where ``policy._target_=...`` took its place."""
    chosen = {str(group): name for group, name in hydra.runtime.choices.items() if name is not None}
    for override in hydra.overrides.task:
        key, _, target = override.lstrip("+").partition("=")
        if key.endswith("._target_"):
            chosen[key.removesuffix("._target_")] = target.rpartition(".")[2]
    return {group: name for group, name in chosen.items() if not group.startswith(("hydra/", "schema/"))}


@contextmanager
def _command_line(arguments: Sequence[str]) -> Iterator[None]:
    """Hydra reads `sys.argv`, and with HYDRA_FULL_ERROR hands errors on to us instead of printing them itself.

    The folder where the command was started can be imported from, so that ``policy._target_=my.module.MyPolicy``
    works; it comes behind our own, so that a folder of the same name never stands in for one of our packages.
    """
    before = sys.argv, list(sys.path), os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = ["batchyard", *arguments]
    sys.path += [str(Path(conf.__file__).parents[1]), os.getcwd()]
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        sys.argv, sys.path[:], full_error = before
        if full_error is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = full_error
