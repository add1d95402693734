"""Reading LETOR files: every form, every complaint, bounded memory."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from unskew.data.judged import letor_text
from unskew.data.judged.letor import LetorError, read_letor

DATA = Path(os.environ.get("UNSKEW_DATA") or "no-such-folder")
# Queries, documents and features of each file, as counted by its publisher.
REAL_FILES = {
    "mq2008/S1.txt.gz": (157, 2_933, 46),
    "mq2008/S2.txt.gz": (157, 3_635, 46),
    "mq2008/S3.txt.gz": (157, 3_062, 46),
    "mq2008/S4.txt.gz": (157, 2_707, 46),
    "mq2008/S5.txt.gz": (156, 2_874, 46),
    "mq2007-agg/A1.txt.gz": (339, 14_013, 21),
    "mq2007-agg/A2.txt.gz": (339, 14_290, 21),
    "mq2007-agg/A3.txt.gz": (339, 13_855, 21),
    "mq2007-agg/A4.txt.gz": (339, 13_813, 21),
    "mq2007-agg/A5.txt.gz": (336, 13_652, 21),
    "mslr-sample/train.txt.gz": (43, 5_000, 136),
    "mslr-sample/test.txt.gz": (43, 5_000, 136),
}


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSKEW_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def write(tmp_path):
    def write_file(text: str | bytes, name: str = "set.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write_file


def test_a_line_is_grade_query_and_features(write):
    judged = read_letor(write("2 qid:7 1:0.5 2:3\n0 qid:7 1:-1e-3 2:4\n1 qid:9 1:0 2:5\n"))

    np.testing.assert_array_equal(judged.features, np.float32([[0.5, 3], [-1e-3, 4], [0, 5]]))
    np.testing.assert_array_equal(judged.grades, np.float32([2, 0, 1]))
    np.testing.assert_array_equal(judged.offsets, [0, 2, 3])
    np.testing.assert_array_equal(judged.query_ids, [7, 9])
    np.testing.assert_array_equal(judged.document_ids, [0, 1, 0])
    assert judged.features.dtype == judged.grades.dtype == np.float32


def test_absent_features_are_zero_and_null_is_nan(write):
    judged = read_letor(write("0 qid:1 3:7\n0 qid:1 1:NULL\n0 qid:1\n"))
    np.testing.assert_array_equal(judged.features, np.float32([[0, 0, 7], [np.nan, 0, 0], [0, 0, 0]]))


def test_ids_count_from_one_unless_a_zero_occurs(write):
    from_one = read_letor(write("0 qid:1 1:5 2:6\n", "one.txt"))
    from_zero = read_letor(write("0 qid:1 1:5 2:6\n0 qid:1 0:4\n", "zero.txt"))
    np.testing.assert_array_equal(from_one.features, np.float32([[5, 6]]))
    np.testing.assert_array_equal(from_zero.features, np.float32([[0, 5, 6], [4, 0, 0]]))


def test_the_first_id_can_be_given(write):
    judged = read_letor(write("0 qid:1 1:5 2:6\n"), first_feature=0)
    np.testing.assert_array_equal(judged.features, np.float32([[0, 5, 6]]))


def test_a_zero_in_a_late_block_moves_all_columns(write, monkeypatch):
    monkeypatch.setattr(letor_text, "BLOCK_BYTES", 16)
    lines = [f"0 qid:1 {i}:{i}\n" for i in (1, 5, 3, 0, 7)]
    judged = read_letor(write("".join(lines)))
    expected = np.zeros((5, 8), dtype=np.float32)
    expected[range(5), [1, 5, 3, 0, 7]] = [1, 5, 3, 0, 7]
    np.testing.assert_array_equal(judged.features, expected)


def test_the_number_of_features_can_be_given(write):
    judged = read_letor(write("0 qid:1 1:5\n"), n_features=4)
    np.testing.assert_array_equal(judged.features, np.float32([[5, 0, 0, 0]]))


def test_comments_give_document_ids(write):
    text = "0 qid:1 1:1 #docid = GX1-2 inc = 1 prob = 0.5\n0 qid:1 1:2 # docid=GX3\n0 qid:2 1:3 #docid = G\n"
    judged = read_letor(write(text))
    assert judged.document_ids.tolist() == ["GX1-2", "GX3", "G"]


def test_other_comments_are_skipped(write):
    judged = read_letor(write("# a header\n0 qid:1 1:1 # the best: 7:7\n0 qid:1 1:2\n"))
    assert judged.document_ids.tolist() == [0, 1]
    np.testing.assert_array_equal(judged.features, np.float32([[1], [2]]))


def test_documents_without_an_id_are_numbered_within_their_query(write):
    judged = read_letor(write("0 qid:1 1:1\n0 qid:2 1:1 #docid = x\n0 qid:2 1:2\n"))
    assert judged.document_ids.tolist() == ["0", "x", "1"]


def test_ids_are_integers_only_where_all_are_written_as_such(write):
    numbers = read_letor(write("0 qid:10 1:1 #docid = 40626\n0 qid:9 1:1 #docid = 5\n", "a.txt"))
    assert (numbers.query_ids.tolist(), numbers.document_ids.tolist()) == ([10, 9], [40626, 5])
    words = read_letor(write("0 qid:007 1:1 #docid = a\n0 qid:q-ä 1:1 #docid = 5\n", "b.txt"))
    assert (words.query_ids.tolist(), words.document_ids.tolist()) == (["007", "q-ä"], ["a", "5"])


def test_line_ends_blank_lines_tabs_and_a_missing_last_newline_do_not_matter(write):
    plain = read_letor(write("1 qid:1 1:2 2:3\n0 qid:2 2:4\n", "plain.txt"))
    messy = read_letor(write("\ufeff\r\n1\tqid:1  1:2\t2:3 \r\n\r\n  \n# note\r\n 0 qid:2 2:4", "messy.txt"))
    np.testing.assert_array_equal(plain.features, messy.features)
    np.testing.assert_array_equal(plain.grades, messy.grades)
    assert plain.query_ids.tolist() == messy.query_ids.tolist() == [1, 2]


def test_gzip_is_recognised_by_content(write):
    judged = read_letor(write(gzip.compress(b"1 qid:1 1:2\n"), "packed.txt"))
    np.testing.assert_array_equal(judged.features, np.float32([[2]]))


def test_values_beyond_float32_become_infinite(write):
    judged = read_letor(write("0 qid:1 1:1.79769313486231E+308 2:-1e300\n"))
    np.testing.assert_array_equal(judged.features, np.float32([[np.inf, -np.inf]]))


def test_several_files_become_one_set(write):
    first, second = write("1 qid:1 1:1\n", "a.txt"), write("0 qid:2 3:2 #docid = b\n0 qid:3 1:3\n", "b.txt")
    judged = read_letor([first, second])
    np.testing.assert_array_equal(judged.features, np.float32([[1, 0, 0], [0, 0, 2], [3, 0, 0]]))
    assert judged.query_ids.tolist() == [1, 2, 3]
    assert judged.document_ids.tolist() == ["0", "b", "0"]


def test_features_out_of_order_find_their_columns(write):
    judged = read_letor(write("0 qid:1 3:3 1:1 2:2\n"))
    np.testing.assert_array_equal(judged.features, np.float32([[1, 2, 3]]))


GOOD = "0 qid:1 1:1 2:2 #docid = a\n"
BAD_LINES = {
    "0 1:3": "expected 'grade qid:ID feature:value ...', found '0 1:3'",
    "0": "expected 'grade qid:ID feature:value ...', found '0'",
    "0 qid: 1:3": "expected 'grade qid:ID feature:value ...', found '0 qid: 1:3'",
    "x qid:1 1:3": "the grade must be a number of 0 or more, found 'x'",
    "-1 qid:1 1:3": "the grade must be a number of 0 or more, found '-1'",
    "nan qid:1 1:3": "the grade must be a number of 0 or more, found 'nan'",
    "0 qid:1 1:3 5": "expected 'feature:value' with a whole number before the colon, found '5'",
    "0 qid:1 a:3": "expected 'feature:value' with a whole number before the colon, found 'a:3'",
    "0 qid:1 -1:3": "expected 'feature:value' with a whole number before the colon, found '-1:3'",
    "0 qid:1 1.5:3": "expected 'feature:value' with a whole number before the colon, found '1.5:3'",
    "0 qid:1 NULL:3": "expected 'feature:value' with a whole number before the colon, found 'NULL:3'",
    "0 qid:1 1,3": "expected 'feature:value' with a whole number before the colon, found '1,3'",
    "0 qid:1 2:abc": "feature 2 must have a number or NULL for a value, found 'abc'",
    "0 qid:1 2:": "feature 2 must have a number or NULL for a value, found ''",
    "0 qid:1 2:1:1": "feature 2 must have a number or NULL for a value, found '1:1'",
    "0 qid:1 2:1,5": "feature 2 must have a number or NULL for a value, found '1,5'",
    '0 qid:1 2:"1"': "feature 2 must have a number or NULL for a value, found '\"1\"'",
    "0 qid:1 1:1 1:2": "feature 1 is given twice",
    "0 qid:1 3000000000:1": "feature 3000000000 is outside 1 to 100000",
}


@pytest.mark.parametrize(("line", "message"), BAD_LINES.items())
@pytest.mark.parametrize("block_bytes", [16, letor_text.BLOCK_BYTES])
def test_a_bad_line_is_named_with_file_number_and_what_was_expected(write, monkeypatch, line, message, block_bytes):
    monkeypatch.setattr(letor_text, "BLOCK_BYTES", block_bytes)
    path = write(f"# header\n{GOOD}\n{GOOD}{line}\n{GOOD}")
    with pytest.raises(LetorError) as error:
        read_letor(path)
    assert str(error.value).startswith(f"{path}, line 5: {message}")


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        (GOOD.encode() + b"\xff qid:1 1:1\n", {}, r"line 2: the grade .* found '\\\\xff'"),
        ("0 qid:1 1:1\n0 qid:1 3:1\n", {"n_features": 2}, "line 2: feature 3 .*n_features"),
        ("0 qid:1 0:1\n", {"first_feature": 1}, "line 1: feature 0"),
        ("0 qid:1 2:1\n0 qid:1 0:1\n", {"n_features": 2}, "line 2: feature 0"),  # after the last id: no column is left
        ("# nothing\n\n", {}, "no judged document"),
        (GOOD, {"first_feature": 2}, "first_feature is 2"),
        (GOOD, {"n_features": 0}, "n_features is 0"),
    ],
)
def test_what_cannot_be_read_is_named(write, content, options, words):
    with pytest.raises(ValueError, match=words):
        read_letor(write(content), **options)


def test_missing_files_are_refused():
    with pytest.raises(ValueError, match="at least one path"):
        read_letor([])
    with pytest.raises(FileNotFoundError, match=r"nowhere\.txt"):
        read_letor("nowhere.txt")


@pytest.mark.parametrize("block_bytes", [16, letor_text.BLOCK_BYTES])
def test_a_query_that_comes_back_is_refused(write, monkeypatch, block_bytes):
    monkeypatch.setattr(letor_text, "BLOCK_BYTES", block_bytes)
    with pytest.raises(LetorError, match=r"line 4: query 1 has lines further up .* sort the file by query"):
        read_letor(write("0 qid:1 1:1\n0 qid:2 1:1\n# note\n0 qid:1 1:1\n"))


def test_a_query_in_two_files_is_refused(write):
    first, second = write("0 qid:1 1:1\n", "a.txt"), write("0 qid:1 1:2\n", "b.txt")
    with pytest.raises(LetorError, match=r"b\.txt, line 1: query 1 has lines"):
        read_letor([first, second])


def test_a_gzip_file_cut_short_is_refused(write):
    packed = gzip.compress(b"".join(b"0 qid:%d 1:%d\n" % (i, i * i) for i in range(5000)))
    with pytest.raises(LetorError, match=r"cut\.gz: the gzip file is damaged or truncated"):
        read_letor(write(packed[: len(packed) // 2], "cut.gz"))


@st.composite
def judged_documents(draw):
    """Queries as (id, documents), a document as (grade, {feature from 1: value})."""
    values = st.floats(width=32, allow_nan=False, allow_infinity=False)
    document = st.tuples(st.integers(0, 4), st.dictionaries(st.integers(1, 9), values, max_size=5))
    ids = draw(st.lists(st.text("abc019-", min_size=1, max_size=4), min_size=1, max_size=5, unique=True))
    return [(query, draw(st.lists(document, min_size=1, max_size=4))) for query in ids]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(queries=judged_documents(), block_bytes=st.integers(1, 200), newline=st.sampled_from(["\n", "\r\n"]))
def test_what_is_written_is_read(tmp_path, queries, block_bytes, newline):
    lines, expected = [], []
    for query, documents in queries:
        for grade, features in documents:
            pairs = " ".join(f"{feature}:{value!r}" for feature, value in features.items())
            lines.append(f"{grade} qid:{query} {pairs}{newline}")
            expected.append([features.get(i, 0.0) for i in range(1, 10)])
    path = tmp_path / "written.txt"
    path.write_bytes("".join(lines).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(letor_text, "BLOCK_BYTES", block_bytes)
        judged = read_letor(path, n_features=9, first_feature=1, cache=False)
    np.testing.assert_array_equal(judged.features, np.float32(expected))
    np.testing.assert_array_equal(judged.sizes, [len(documents) for _, documents in queries])
    assert [str(query) for query in judged.query_ids] == [query for query, _ in queries]
    np.testing.assert_array_equal(judged.grades, [grade for _, documents in queries for grade, _ in documents])


MEASURE_MEMORY = """
import sys
from pathlib import Path
from unskew.data.judged import letor_text
from unskew.data.judged.letor import read_letor

def kilobytes(field):
    return int(Path("/proc/self/status").read_text().split(field + ":")[1].split()[0])

letor_text.BLOCK_BYTES = 100_000  # many blocks in a small file
read_letor(sys.argv[1], cache=False)  # whatever is set up once is set up now
before = kilobytes("VmRSS")
judged = read_letor(sys.argv[2], cache=False)
print((kilobytes("VmHWM") - before) * 1024, judged.features.nbytes)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak of memory from /proc")
def test_reading_takes_at_most_half_as_much_memory_again_as_the_result(tmp_path):
    """Even when the last line makes every row twice as wide."""
    lines = [f"{i % 5} qid:{i // 20} {i % 999 + 1}:1 1000:{i}\n" for i in range(20_000)]
    small, large = tmp_path / "small.txt", tmp_path / "large.txt"
    small.write_text("".join(lines[:500]))
    large.write_text("".join([*lines, "0 qid:last 2000:1\n"]))
    command = [sys.executable, "-c", MEASURE_MEMORY, str(small), str(large)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    peak, result = map(int, printed.split())
    assert result == 20_001 * 2000 * 4
    assert peak < 1.5 * result + 16e6


@pytest.mark.parametrize(("name", "counts"), REAL_FILES.items())
def test_real_files_have_the_counts_of_their_publishers(name, counts):
    if not (DATA / name).exists():
        pytest.skip(f"{name} is not in UNSKEW_DATA")
    judged = read_letor(DATA / name)
    assert (judged.n_queries, judged.n_documents, judged.n_features) == counts
