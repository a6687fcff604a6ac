"""An application's own table, and the statement that stores its rows with an outcome."""

from __future__ import annotations

from holdfast import ResultWithRows
from holdfast.store import Statement, Store
from tests.story import by_hand, look

# The table does not have this column: as if a migration had not been run yet.
NO_COLUMN = "tone"


def make_words(store: Store) -> None:
    """A table whose constraint rejects one text."""
    by_hand(store, "CREATE TABLE words (words text NOT NULL CHECK (words <> 'RUDE'))")


def store_words(column: str = "words") -> Statement:
    text = f"INSERT INTO words ({column}) SELECT said.words FROM {{rows said: words text}}"
    return Statement("store_words", "affected", "", text, frozenset({"said"}))


def kept(words: str, result: object = "done") -> ResultWithRows:
    """A result with a row of the application."""
    return ResultWithRows(result, {"said": [{"words": words}]})


def words_of(store: Store) -> list[str]:
    return [row["words"] for row in look(store, "SELECT words FROM words ORDER BY words")]
