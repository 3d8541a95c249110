"""web_search: a hermetic corpus ranked the same way every time, and a live search that fails as an observation."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import UsageError
from agent.state import ToolCall, ToolResult
from agent.tools.base import ToolContext, ToolError
from agent.tools.corpus import Corpus, clean, open_corpus, query_terms
from agent.tools.registry import ToolRegistry
from agent.tools.web_search import WebSearch, live_hits, search_live

DOCUMENTS = {
    "iceland.md": "# Iceland\n\nIceland is an island country. Its capital is Reykjavik.\n",
    "reykjavik.txt": "Reykjavik\nThe mayor of Reykjavik lives in a house with a red roof.\n",
    "deep/peru.txt": "Peru\nThe capital of Peru is Lima.\n",
    "notes.bin": "Iceland Iceland Iceland",
}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for name, text in DOCUMENTS.items():
        path = tmp_path / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "corpus"


def search(folder: Path | None, query: str, provider: str = "auto") -> ToolResult:
    registry = ToolRegistry([WebSearch()], ToolContext(corpus=folder, search_provider=provider))
    return registry.execute(ToolCall(name="web_search", arguments={"query": query}))


def test_the_best_document_comes_first_whole_and_with_its_source(corpus: Path) -> None:
    result = search(corpus, "What is the capital of Iceland?")
    assert result.success
    first, second = result.data.splitlines()
    assert first == "1. Iceland \u2014 Iceland is an island country. Its capital is Reykjavik. (iceland.md)"
    assert second.startswith("2. Peru \u2014 ")
    assert second.endswith("(deep/peru.txt)")


def test_any_matching_word_counts_and_so_does_its_stem(corpus: Path) -> None:
    assert "(deep/peru.txt)" in search(corpus, "xyzzy PERÚ capitals").data.splitlines()[0]


def test_nothing_found_says_so(corpus: Path) -> None:
    result = search(corpus, "xyzzy")
    assert (result.success, result.error_type) == (False, "empty")
    assert "Try other" in (result.error or "")


@pytest.mark.parametrize("query", ["?!", "\x00", '"'])
def test_a_query_without_words_is_refused(corpus: Path, query: str) -> None:
    assert search(corpus, query).error_type == "bad_args"


def test_a_huge_query_is_refused(corpus: Path) -> None:
    assert search(corpus, "a" * 200_000).error_type == "bad_args"


@pytest.mark.parametrize(
    "query", ['Iceland" OR title:"Peru', "NEAR(Iceland", "Iceland*", "-Iceland", "title : Iceland", "Iceland'); DROP"]
)
def test_query_text_never_becomes_syntax(corpus: Path, query: str) -> None:
    assert "iceland.md" in search(corpus, query).data


def test_any_query_text_gives_hits_or_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "a.txt").write_text("alpha AND OR NOT NEAR beta", encoding="utf-8")
    index = open_corpus(folder)

    @given(
        st.text(max_size=80)
        | st.lists(st.sampled_from(["AND", "OR", "NOT", "NEAR(", '"', "*", "^", ":", "alpha"])).map(" ".join)
    )
    def check(query: str) -> None:
        hits = index.search(query, 8)
        assert len(hits) <= 1
        if "alpha" in query_terms(query):
            assert hits

    check()


def test_function_words_count_only_alone() -> None:
    assert query_terms("What is THE capital of Peru, the capital?") == ["capital", "peru"]
    assert query_terms("what is it") == ["what", "is", "it"]


def test_at_most_eight_results_within_the_limit_whatever_the_documents(tmp_path: Path) -> None:
    for number in range(30):
        text = f"{'long title ' * 60}\n" + "filler " * 3000 + f"needle {number} " + "filler " * 3000
        (tmp_path / f"{'n' * 90}{number:02}.txt").write_text(text, encoding="utf-8")
    result = search(tmp_path, "needle")
    lines = result.data.splitlines()
    assert not result.truncated
    assert len(result.data) <= WebSearch.max_chars
    assert 5 <= len(lines) <= 8
    assert all("needle" in line for line in lines)


def test_equal_ranks_keep_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        (tmp_path / f"{name}.txt").write_text("same words\nin each", encoding="utf-8")
    assert [hit.source for hit in open_corpus(tmp_path).search("same", 8)] == ["a.txt", "b.txt", "c.txt"]


def test_control_characters_do_not_come_through(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Title\x1b[2J\u202e\x00\nneedle\x07 \u2066here", encoding="utf-8")
    assert search(tmp_path, "needle").data == "1. Title [2J \u2014 needle here (a.txt)"


def test_the_title_is_the_first_line_where_that_is_short_else_the_files_name(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("A single needle", encoding="utf-8")
    (tmp_path / "two.md").write_text("word " * 30 + "needle\nmore", encoding="utf-8")
    hits = open_corpus(tmp_path).search("needle", 8)
    assert {hit.source: hit.title for hit in hits} == {"one.txt": "A single needle", "two.md": "two"}
    assert all("needle" in hit.body for hit in hits)


def test_links_out_of_the_folder_and_special_files_are_ignored(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("needle secret", encoding="utf-8")
    (corpus / "link.txt").symlink_to(tmp_path / "secret.txt")
    (corpus / "folder").symlink_to(tmp_path, target_is_directory=True)
    (corpus / "broken.txt").symlink_to(corpus / "missing.txt")
    os.mkfifo(corpus / "fifo.txt")
    assert search(corpus, "needle").error_type == "empty"


def test_an_index_is_shared_until_the_folder_changes(corpus: Path) -> None:
    before = open_corpus(corpus)
    assert open_corpus(corpus / ".." / "corpus") is before
    (corpus / "new.txt").write_text("a needle", encoding="utf-8")
    assert "new.txt" in search(corpus, "needle").data
    assert open_corpus(corpus) is not before


def test_threads_share_an_index(corpus: Path) -> None:
    answers: list[str] = []

    def work() -> None:
        answers.extend(search(corpus, "capital of Iceland").data for _ in range(10))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(answers) == 80
    assert set(answers) == {search(corpus, "capital of Iceland").data}


def test_what_is_wrong_with_a_corpus_is_said_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"missing: no such folder"):
        search(tmp_path / "missing", "word")
    with pytest.raises(UsageError, match=r"no \.txt or \.md file"):
        search(tmp_path, "word")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(UsageError, match=r"latin\.txt: not UTF-8 at byte 3"):
        search(tmp_path, "word")
    (tmp_path / "latin.txt").write_bytes(b"a" * 1_000_001)
    with pytest.raises(UsageError, match=r"latin\.txt: larger than 1,000,000 bytes"):
        search(tmp_path, "word")


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    for number in range(2001):
        (tmp_path / f"{number}.txt").touch()
    with pytest.raises(UsageError, match="use a smaller corpus"):
        search(tmp_path, "word")


def test_asking_for_a_corpus_without_one_is_the_persons_mistake() -> None:
    with pytest.raises(UsageError, match="there is no corpus to search"):
        search(None, "word", provider="corpus")


def test_a_corpus_closes_its_database(corpus: Path) -> None:
    index = Corpus(corpus, ["iceland.md"])
    connection = index._connection
    del index
    with pytest.raises(Exception, match="closed"):
        connection.execute("SELECT 1")


def test_a_live_search_that_reaches_nobody_is_an_observation(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:  # bound and not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("DDGS_PROXY", f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(ToolError) as caught:
            search_live("anything")
    assert caught.value.error_type == "network"
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 250


def test_live_results_are_cleaned() -> None:
    hits = live_hits([{"title": "A\x1b[31m\n title", "href": "https://example.test/\u202e", "body": None}, {}])
    assert [(hit.title, hit.source) for hit in hits] == [("A [31m title", "https://example.test/"), ("", "")]


@given(st.text())
def test_cleaned_text_is_one_printable_line(text: str) -> None:
    assert clean(text).isprintable()
