"""Names of columns, before an engine is imported: what is refused, and what is left to the engine."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.ingestion.columns import Columns
from unskew.ingestion.schema import check_schema
from unskew.ingestion.settings import Tables

PLAIN = "session,query,document,position\ns,q,d,1\n"  # lacks the click


@pytest.mark.parametrize(
    ("name", "text", "encoding"),
    [
        ("events.csv", PLAIN, None),
        ("events.tsv", PLAIN.replace(",", "\t"), None),
        ("events.csv", PLAIN.replace(",", ";"), "utf-16"),
        ("day=1/events.csv", PLAIN, None),
    ],
)
def test_a_plain_header_without_clicks_is_refused(tmp_path, name, text, encoding):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding=encoding or "utf-8-sig")
    found = "session, query, document, position" + (", day" if "day" in name else "")
    with pytest.raises(ValueError, match=f"no column looks like the click. .*Found: {found}$"):
        check_schema(Tables(file, encoding=encoding), Columns())


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.splitlines()[0],  # no second line to compare with
        "# a comment\n" + PLAIN,
        "s,q,d,1\ns,q,d,2\n",  # no header
        "session,query,document,position,click,clicK\ns,q,d,1,0,0\n",  # an engine renames one of two
        'session,query,document,"position\ns,q,d,1\n',  # a quotation mark is never closed
        "s\xe9ance,query,document,position\ns,q,d,1\n",  # latin-1, which is not said
    ],
)
def test_a_header_that_is_not_plain_is_left_to_the_engine(tmp_path, text):
    (tmp_path / "events.csv").write_bytes(text.encode("latin-1"))
    check_schema(Tables(tmp_path / "events.csv"), Columns())


def test_columns_inside_structs_are_found(tmp_path):
    table = pa.table({"id": ["s"], "q": ["q"], "shown": [{"item": "d", "place": 1, "hit": 0}]})
    pq.write_table(table, tmp_path / "events.parquet")
    names = {"session": "id", "query": "q", "document": "shown.item", "position": "shown.place"}
    check_schema(Tables(tmp_path / "events.parquet"), Columns(**names, click="shown.hit"))
    with pytest.raises(ValueError, match=r"no column 'shown.hits' \(did you mean 'shown.hit'\?\)"):
        check_schema(Tables(tmp_path / "events.parquet"), Columns(**names, click="shown.hits"))


def test_columns_of_a_file_without_a_header_have_the_names_of_the_engine(tmp_path):
    (tmp_path / "events.csv").write_text("s,q,d,e\ns,q,d,f\n")
    check_schema(Tables(tmp_path / "events.csv"), Columns(session="column0"))
