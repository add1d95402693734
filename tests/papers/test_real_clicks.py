"""The papers' experiments on real clicks, from generated files of the two public logs' layouts."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.papers.experiment_files import load_experiment
from unskew.papers.reproduce import on_real_clicks, reproduce

N_QUERIES, N_SHOWN = 12, 10
FEW = {"steps": 4, "validate_every": 2, "hidden": [4], "batch_size": 8}


def names_of(query):
    return [f"d{query}x{number}" for number in range(N_SHOWN)]


def ultre2_folder(folder):
    """Two pages per query and as many judged queries; the better a document, the more it is clicked."""
    rng = np.random.default_rng(0)
    lists, clicks, grades, features = [], [], [], []
    for query in range(N_QUERIES):
        values = rng.random(N_SHOWN)
        features += [f"{name} {value:.3f}" for name, value in zip(names_of(query), values, strict=True)]
        for page in range(2):
            order = rng.permutation(N_SHOWN)
            lists.append(f"{query}_{page}:{' '.join(names_of(query)[place] for place in order)}")
            clicks.append(f"{query}_{page}:{' '.join('1' if values[p] > 0.6 or p == 0 else '0' for p in order)}")
        grades.append(f"{query}_0:{' '.join(str(int(4 * value)) for value in values)}")
    judged = [f"{query}_0:{' '.join(names_of(query))}" for query in range(N_QUERIES)]
    texts = {"lists": lists, "clicks": clicks, "grades": grades, "judged_lists": judged, "features": features}
    for name, lines in texts.items():
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return f"ultre-2:{folder}"


def baidu_files(folder):
    rng = np.random.default_rng(0)
    values = [rng.random(N_SHOWN).tolist() for _ in range(N_QUERIES)]
    queries = [str(query) for query in range(N_QUERIES)]
    documents = [names_of(query) for query in range(N_QUERIES)]
    clicks = {
        "query_id": queries,
        "text_md5": documents,
        "position": [list(range(1, N_SHOWN + 1))] * N_QUERIES,
        "click": [[int(value > 0.5 or place == 0) for place, value in enumerate(row)] for row in values],
        "media_type": [[0, 1] * 5] * N_QUERIES,
        "bm25": values,
    }
    judged = {
        "query_id": queries,
        "url_md5": documents,
        "label": [[int(4 * value) for value in row] for row in values],
        "bm25": values,
    }
    for name, columns in {"clicks": clicks, "judged": judged}.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    return f"baidu-ultr:{folder / 'clicks.parquet'}+{folder / 'judged.parquet'}"


@pytest.mark.parametrize("files", [ultre2_folder, baidu_files])
def test_an_experiment_runs_on_real_clicks_and_goes_on(tmp_path, files):
    experiment = load_experiment("cdla-table1")
    some = [entry for entry in experiment.methods if entry.label in ("Naive", "DLA")]
    few = replace(experiment, methods=tuple(some), figures=(), claims=experiment.claims[1:2])
    (tmp_path / "files").mkdir()
    data = files(tmp_path / "files")
    done = [reproduce(few, data=data, seeds=2, jobs=1, options=FEW, out=tmp_path / "out") for _ in range(2)]
    assert [(run.title, error) for run, error in done[0].results.failed] == []
    assert len(done[0].results.results) == 4
    assert (done[0].results.found, done[1].results.found) == (0, 4)


def test_what_needs_a_simulation_is_left_out():
    experiment = on_real_clicks(load_experiment("lbd-table1"))
    labels = {entry.label for entry in experiment.methods}
    assert "LBD" in labels
    assert not labels & {"True observation", "Labelled Data, shown ten"}
    assert (experiment.rows, [entry.name for entry in experiment.settings]) == ((), ["real clicks"])


def test_two_logs_of_real_clicks_are_two_experiments(tmp_path):
    with pytest.raises(ValueError, match="one by one"):
        reproduce("cdla-table1", data=["ultre-2:a", "world:tiny"], out=tmp_path / "out")
