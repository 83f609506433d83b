"""What a training says on the command line: its figures, and what to type next."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from bench.learning.data import CORPUS
from bench.learning.figures import Figures
from bench.terminal import PLAIN_WIDTH

if TYPE_CHECKING:
    from bench.learning.training import Trained

COLUMNS = {  # title: figure of predictors.score, format
    "τ": ("tau", "{:.3f}"),
    "MAE tokens": ("mae", "{:,.1f}"),
    "in its bin of 4": ("bins_4", "{:.0%}"),
    "±1": ("bins_4_near", "{:.0%}"),
    "under `upper`": ("coverage", "{:.1%}"),
    "pinball": ("pinball", "{:,.1f}"),
}


def figures_table(trained: Trained) -> str:
    text = StringIO()
    Console(file=text, width=PLAIN_WIDTH).print(_table(trained.figures))
    return text.getvalue() + "\n".join([*_notes(trained), *_next(trained)])


def _table(figures: Figures) -> Table:
    table = Table(title="on rows that it has not seen", title_justify="left")
    table.add_column("predictor")
    for title in COLUMNS:
        table.add_column(title, justify="right")
    for name, values in figures.items():
        table.add_row(name, *(form.format(values[key]) for key, form in COLUMNS.values()))
    return table


def _notes(trained: Trained) -> list[str]:
    data, cost = trained.data, trained.cost
    cut = int(data.test.capped.sum())
    return [
        f"{len(data.train):,} rows to learn from, {len(data.test):,} to score on, no prompt in both"
        + (f"; {cut:,} of the latter were cut and count for τ and bins only" if cut else ""),
        f"fitted in {cost['fit_s']:.1f} s; a prediction takes {cost['predict_ms_alone']:.2f} ms alone and "
        f"{cost['predict_ms_in_32']:.2f} ms in a batch of 32",
        f"figures, model, plots: {trained.folder}",
    ]


def _next(trained: Trained) -> list[str]:
    workload = " workload=corpus" if trained.data.source == CORPUS else "  # and the workload that the rows are from"
    command = "next:  batchyard run policy=multi_bin predictor=learned predictor.model="
    if trained.address is None:
        return [f"{command}{trained.folder}/model{workload}"]
    if trained.alias is None:
        return [f"{trained.address} in {trained.store}", f"{command}{trained.address}{workload}"]
    called = f"{trained.address.rpartition('/')[0]}@{trained.alias}"
    return [f"{trained.address}, now {called}, in {trained.store}", f"{command}{called}{workload}"]
