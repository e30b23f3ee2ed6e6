"""Text that comes from a campaign is shown, never run."""

import json
import re
from html.parser import HTMLParser

from hypothesis import given, strategies as st
from plotly.offline import get_plotlyjs_version

from ablate.dashboards.data.formatting import plain
from ablate.dashboards.html.document import plotly_js
from ablate.dashboards.html.markup import (
    HtmlColumn,
    HtmlEntry,
    copy_button,
    details,
    plain_table,
    script_json,
    sortable_table,
    text,
)


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.words += data


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    return reader


@given(st.text())
def test_any_text_comes_back_from_html_as_it_was(value: str) -> None:
    value = value.replace("\r", "").replace("\0", "")
    found = read(details(value, ""))
    assert found.tags == ["details", "summary"]
    assert found.words == value
    assert dict(read(copy_button(value)).attributes)["data-csv"] == value


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_json_in_a_script_is_the_same_json_and_cannot_end_the_script(value: object) -> None:
    encoded = script_json(value)
    assert json.loads(encoded) == value
    assert not set("<>&") & set(encoded)


def test_plotly_gets_no_tag_entity_or_template_from_a_label() -> None:
    assert plain("<b>%{x}&lt;") == "&lt;b&gt;%&#123;x}&amp;lt;"


def test_hostile_cells_add_no_element_to_a_table() -> None:
    hostile = '"><script>alert(1)</script>'
    rows = [[HtmlEntry(text(hostile), hostile)]]
    found = read(sortable_table([HtmlColumn(hostile, hint=hostile)], rows, caption=hostile))
    assert "script" not in found.tags
    assert ("data-value", hostile) in found.attributes
    assert "script" not in read(plain_table([hostile], [[hostile]])).tags


def test_the_shipped_plotly_reads_what_the_installed_one_writes() -> None:
    shipped = re.search(r"plotly.js \(cartesian - minified\) v(\d+)\.", plotly_js())
    assert shipped is not None
    assert shipped[1] == get_plotlyjs_version().split(".")[0]
