"""Saved models: the same scores come back, and nothing else can get in."""

import json
import re
import subprocess
import sys
from dataclasses import fields

import numpy as np
import pytest

from unskew import Recipe, fit, load_model, save_model
from unskew.data.files import HOST, json_digest
from unskew.evaluation.evaluate import score_documents
from unskew.methods import METHODS
from unskew.networks.registry import Network
from unskew.serving.card import card_markdown, model_card

FAST = {"steps": 6, "hidden": (8,), "batch_size": 64}


@pytest.fixture(scope="module")
def model(log):
    return fit(Recipe.of("dla", **FAST), log)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.has_ranker and name != "hte"])
def test_every_method_ranks_the_same_after_saving(name, log, looked_at, world, tmp_path):
    judged = world.train if name == "labelled" else None
    model = fit(Recipe.of(name, **FAST), looked_at if name == "attention" else log, judged=judged)
    loaded = load_model(save_model(model, tmp_path / "model"))
    expected = score_documents(model.ranker(), world.test)
    np.testing.assert_array_equal(score_documents(loaded.ranker(), world.test), expected)
    assert loaded.recipe == model.recipe
    if model.examination() is not None:
        np.testing.assert_array_equal(loaded.examination(), model.examination())


def test_the_folder_holds_text_json_and_safetensors_only(model, tmp_path):
    folder = save_model(model, tmp_path / "model")
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["README.md", "card.json", "history.json", "model.json", "weights.safetensors"]
    about = json.loads((folder / "model.json").read_text())
    assert about["method"] == "dla"
    assert about["versions"]["unskew"]
    assert about["trained_on"]["sessions"] > 0


def test_a_saved_model_leaves_nothing_to_later_defaults(log, tmp_path):
    model = fit(Recipe.of("dla", network="linear"), log)
    about = json.loads((save_model(model, tmp_path / "model") / "model.json").read_text())
    network = about["problem"]["network"]
    assert {entry.name for entry in fields(Network)} - set(network) == {"outside"}
    assert None not in network.values()
    expected = {"max_weight": None, "observation_rate": 10.0, "observed_by": "likelihood"}
    assert about["hyper_parameters"] == expected  # the defaults of DLA
    history = load_model(tmp_path / "model").history
    assert history.settings["steps"] == history.ending.steps
    assert history.settings["batch_size"] is not None
    assert None not in (history.settings["average"], history.settings["learning_rate"])


def test_the_card_repeats_the_options_that_were_asked_for(log):
    model = fit(Recipe.of("dla", optimizer="adagrad", network="linear"), log)
    options = "--set optimizer=adagrad --set network=linear"  # no steps, and the usual learning rate
    card = model_card(model)
    assert card["command"] == f"unskew train LOG --method dla --seed 0 {options} --out MODEL"
    assert f"Training {model.history.ended}." in card_markdown(card)


def test_an_existing_model_is_not_overwritten_unless_asked(model, tmp_path):
    folder = save_model(model, tmp_path / "model")
    with pytest.raises(FileExistsError, match="overwrite"):
        save_model(model, folder)
    save_model(model, folder, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_is_no_model_is_never_overwritten(model, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match=r"thesis contains no model\.json"):
        save_model(model, tmp_path / "thesis", overwrite=True)
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "years of work"


def test_a_failed_save_leaves_the_old_model(model, tmp_path, monkeypatch):
    folder = save_model(model, tmp_path / "model")
    before = (folder / "weights.safetensors").read_bytes()

    def full(*_, **__):
        raise OSError("No space left on device")

    monkeypatch.setattr("unskew.serving.model_files.save_file", full)
    with pytest.raises(OSError, match="No space"):
        save_model(model, folder, overwrite=True)
    assert (folder / "weights.safetensors").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_cut_file_says_so(model, tmp_path):
    folder = save_model(model, tmp_path / "model")
    weights = folder / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"weights\.safetensors cannot be read .* save the model again"):
        load_model(folder)
    (folder / "model.json").write_text('{"format"')
    with pytest.raises(ValueError, match=r"model\.json cannot be read"):
        load_model(folder)


def test_a_folder_that_is_no_model_says_what_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"is not a saved model: it has no model\.json"):
        load_model(tmp_path)


def test_weights_of_another_size_are_refused(model, log, tmp_path):
    folder = save_model(model, tmp_path / "model")
    other = save_model(fit(Recipe.of("dla", **{**FAST, "hidden": (4,)}), log), tmp_path / "other")
    (folder / "weights.safetensors").write_bytes((other / "weights.safetensors").read_bytes())
    with pytest.raises(ValueError, match=r"weights\.safetensors cannot be read \(its content does not match"):
        load_model(folder)


@pytest.mark.parametrize("name", ["weights.safetensors", "history.json", "model.json"])
def test_a_flipped_bit_is_noticed(model, tmp_path, name):
    file = save_model(model, tmp_path / "model") / name
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    with pytest.raises(ValueError, match=rf"{name} (cannot be read|is damaged)"):
        load_model(tmp_path / "model")


def sealed(folder, change):
    """Change model.json as somebody would who also knows how to write its digest."""
    about = json.loads((folder / "model.json").read_text())
    del about["digest"]
    change(about)
    (folder / "model.json").write_text(json.dumps({**about, "digest": json_digest(about)}))
    return folder


def test_sizes_that_the_weights_do_not_have_are_refused_before_anything_is_allocated(model, tmp_path):
    folder = sealed(save_model(model, tmp_path / "model"), lambda about: about["problem"].update(n_features=10**12))
    with pytest.raises(ValueError, match=r"model: weights do not match .* 1000000000000"):
        load_model(folder)


@pytest.mark.parametrize("entry", ["method", "problem", "hyper_parameters", "settings", "transform", "feature_names"])
@pytest.mark.parametrize("value", [None, 7, "text", [[1]]], ids=str)
def test_a_description_of_the_wrong_shape_is_one_line_that_names_the_file(model, tmp_path, entry, value):
    folder = sealed(save_model(model, tmp_path / "model"), lambda about: about.update({entry: value}))
    with pytest.raises(ValueError, match=re.escape(str(folder))):
        load_model(folder)


def test_a_kill_while_a_model_is_replaced_is_mended_by_the_next_command_that_opens_it(model, tmp_path):
    folder = save_model(model, tmp_path / "model")
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    scratch = tmp_path / f".model.{HOST}-{dead.pid}-00000000.part"
    scratch.mkdir()
    folder.replace(scratch / "old")
    with pytest.warns(RuntimeWarning, match="the old folder was restored"):
        load_model(folder)
