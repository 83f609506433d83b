from __future__ import annotations

import json
import os
import pickle
import zipfile

import numpy as np
import pytest
import sklearn
from sklearn.linear_model import Ridge
from skops.io import dump, get_untrusted_types

from predictors import store
from predictors.features import FEATURES
from predictors.learned import LearnedConfig
from predictors.pairs import inputs_of
from predictors.store import ABOUT, MODEL, BadModel, load, save
from predictors.training import fit


class Words:
    name, width = "words/2", 2

    def embed(self, texts):
        return np.array([[1.0, 0.0] if text and "story" in text else [0.0, 1.0] for text in texts])


@pytest.fixture
def folder(learned, tmp_path):
    return save(learned, tmp_path / "model")


def edit(folder, **changes):
    about = json.loads((folder / ABOUT).read_text())
    (folder / ABOUT).write_text(json.dumps({**about, **changes}))


def one_line(folder):
    with pytest.raises(BadModel) as error:
        load(folder)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_is_loaded_answers_as_what_was_saved(of_each_objective, parts, tmp_path):
    inputs = inputs_of(parts[1])[:100]
    again = load(save(of_each_objective, tmp_path / "a" / "b"))
    assert again.predict(inputs) == of_each_objective.predict(inputs)
    assert again.config == of_each_objective.config


def test_the_folder_says_what_it_holds(folder):
    about = json.loads((folder / ABOUT).read_text())
    assert about["version"] == store.VERSION
    assert about["scikit_learn"] == sklearn.__version__
    assert about["features"] == list(FEATURES)
    assert about["config"]["objective"] == "length"
    assert sorted(about["tenants"]) == ["chatty", "plain", "terse"]


def test_nothing_in_the_file_is_a_pickle_or_needs_trust(folder):
    assert get_untrusted_types(file=folder / MODEL) == []
    with zipfile.ZipFile(folder / MODEL) as archive:
        assert {name.rsplit(".", 1)[-1] for name in archive.namelist()} == {"json", "npy"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 1}, "format version 1, this program reads 2"),
        ({"kind": "a bread recipe"}, "holds a 'a bread recipe', not a 'batchyard length predictor'"),
        ({"scikit_learn": "0.24.2"}, f"made with scikit-learn 0.24.2, here is {sklearn.__version__}"),
        ({"features": ["mood"]}, "made with other features"),
        ({"sha256": "0"}, "not the file that model.json describes"),
        ({"embedder": "m/256"}, "made with the embedder 'm/256', given is none"),
    ],
)
def test_another_version_or_kind_is_named(folder, change, message):
    edit(folder, **change)
    assert message in one_line(folder)
    assert str(folder) in one_line(folder)


def test_a_patch_release_of_the_library_is_no_other_version(folder):
    edit(folder, scikit_learn=".".join(sklearn.__version__.split(".")[:2]) + ".99")
    load(folder)


def test_a_truncated_file_is_named(folder):
    path = folder / MODEL
    path.write_bytes(path.read_bytes()[:-1000])
    assert "truncated" in one_line(folder)
    edit(folder, sha256=store._digest(path))  # even if somebody vouches for it
    assert "not a batchyard length predictor" in one_line(folder)


def test_a_missing_or_broken_description_is_named(folder, tmp_path):
    assert "expected model.skops and model.json" in one_line(tmp_path / "nowhere")
    for text in ("{", "[]", "{}", ""):
        (folder / ABOUT).write_text(text)
        assert "not the description of a batchyard length predictor" in one_line(folder)


class Trap:
    def __reduce__(self):
        return (os.mkdir, ("trapped",))


@pytest.mark.parametrize("how", ["pickle", "skops", "other estimator", "other dictionary"])
def test_what_is_not_a_predictor_is_refused_and_runs_nothing(folder, tmp_path, monkeypatch, how):
    monkeypatch.chdir(tmp_path)
    path = folder / MODEL
    if how == "pickle":
        path.write_bytes(pickle.dumps(Trap()))
    elif how == "skops":
        dump({"part": "LengthModel", "fields": {"encoder": os.mkdir}}, path)
    elif how == "other estimator":
        dump(Ridge(), path)
    else:
        dump({"part": "Ridge", "fields": {}}, path)
    edit(folder, sha256=store._digest(path))
    assert "length predictor" in one_line(folder)
    assert not (tmp_path / "trapped").exists()


def test_an_embedder_is_asked_for_by_name(parts, tmp_path):
    config = LearnedConfig(features=("embedding", "tenant"), rounds=40, topics=0, calibration=200)
    predictor = fit(parts[0].head(600), config, Words())
    folder = save(predictor, tmp_path / "m")
    assert "made with the embedder 'words/2', given is none" in one_line(folder)
    inputs = inputs_of(parts[1])[:20]
    assert load(folder, Words()).predict(inputs) == predictor.predict(inputs)
    asked = inputs_of(parts[1][parts[1].text.str.contains("story|Name one")])
    by_kind = [[p.expected for i, p in zip(asked, predictor.predict(asked), strict=True) if word in i.text]
               for word in ("story", "Name one")]  # fmt: skip
    assert min(by_kind[0]) > max(by_kind[1])
