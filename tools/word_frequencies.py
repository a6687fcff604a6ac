"""Write `word_frequencies.txt` of the rewrite from the word lists of wordfreq.

wordfreq is no dependency: run this in an environment of its own, `pip install wordfreq`, and only
to add a language.
"""

from __future__ import annotations

import math
import re
import sys
import unicodedata
from pathlib import Path

TABLE = Path(__file__).parents[1] / (
    "packages/holdfast-rewrite/holdfast_rewrite/word_frequencies.txt"
)
# By the tag of the rewrite. The gate compares all of them with the target language.
TARGETS = "de en es fr it nl pl pt"
OTHERS = "ca cs da fi fil hr hu id is lt lv no ro sk sl sv tr"
CALLED = {"hr": "sh", "no": "nb"}
LEAST_IN_TARGET = 4.0
LEAST_IN_OTHER = 4.4
HEAD = """\
# Frequent words of 25 languages with their Zipf frequency: the logarithm of their number in a
# billion words. Derived from wordfreq 3.1.1 by Robyn Speer, CC BY-SA 4.0:
# https://creativecommons.org/licenses/by-sa/4.0/. Written by tools/word_frequencies.py.
"""
_WORD = re.compile(r"[^\W\d_]+")


def main() -> int:
    from wordfreq import get_frequency_dict  # type: ignore[import-not-found]

    lines = []
    for language in f"{TARGETS} {OTHERS}".split():
        least = LEAST_IN_TARGET if language in TARGETS.split() else LEAST_IN_OTHER
        found: dict[float, list[str]] = {}
        for word, share in get_frequency_dict(CALLED.get(language, language), "small").items():
            often = round(math.log10(share) + 9, 1)
            if often >= least and _WORD.fullmatch(word):
                found.setdefault(often, []).append(unicodedata.normalize("NFC", word))
        for often in sorted(found, reverse=True):
            lines.append(f"{language} {often} {' '.join(sorted(found[often]))}")
    TABLE.write_text(HEAD + "\n".join(lines) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
