"""A BiLSTM tagger that spells rare words with LSTMs of their letters, on docstrings.

Which words of a docstring are names of its module's code? A word that is seen often has a vector
of its own; any other is read letter by letter, from both ends (Plank, Søgaard and Goldberg, 2016).
The text is the standard library's, on this machine.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor, nn

from programs.example import Example, seeded
from programs.stdlib_trees import library_files

DTYPES = (torch.float32, torch.float64)


class Word(NamedTuple):
    number: int
    """Among the words that have a vector, or -1."""
    letters: list[int]
    is_name: int


class Tagger(nn.Module):
    """A sentence of words to its loss (0-d), and how many words are tagged right."""

    def __init__(self, words: int, letters: int = 128, width: int = 32) -> None:
        super().__init__()
        self.words = nn.Embedding(words, 2 * width)
        self.letters = nn.Embedding(letters, width)
        self.spell_right = nn.LSTMCell(width, width)
        self.spell_left = nn.LSTMCell(width, width)
        self.read_right = nn.LSTMCell(2 * width, width)
        self.read_left = nn.LSTMCell(2 * width, width)
        self.tag = nn.Linear(2 * width, 2)

    def forward(self, sentence: list[Word]) -> tuple[Tensor, int]:
        vectors = [self.embed(word) for word in sentence]
        right = states(self.read_right, vectors)
        left = states(self.read_left, vectors[::-1])[::-1]
        loss = self.tag.bias.new_zeros(())
        correct = 0
        for word, before, after in zip(sentence, right, left, strict=True):
            scores = self.tag(torch.cat((before, after)))
            loss = loss + nn.functional.cross_entropy(scores, torch.tensor(word.is_name))
            correct += int(scores.argmax() == word.is_name)
        return loss, correct

    def embed(self, word: Word) -> Tensor:
        if word.number >= 0:
            return self.words(torch.tensor(word.number))
        letters = [self.letters(torch.tensor(letter)) for letter in word.letters]
        return torch.cat(
            (states(self.spell_right, letters)[-1], states(self.spell_left, letters[::-1])[-1])
        )


def states(cell: nn.LSTMCell, inputs: list[Tensor]) -> list[Tensor]:
    h = c = cell.bias_hh.new_zeros(cell.hidden_size)
    found = []
    for x in inputs:
        h, c = cell(x, (h, c))
        found.append(h)
    return found


@lru_cache
def sentences(count: int) -> list[tuple[list[str], frozenset[str]]]:
    """The first sentences of docstrings, in words, and the names of the module of each."""
    return list(islice(documented(), count))


def documented() -> Iterator[tuple[list[str], frozenset[str]]]:
    for file in library_files():
        try:
            tree = ast.parse(file.read_text())
        except (SyntaxError, UnicodeDecodeError):
            continue
        names = frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                words = re.findall(r"[A-Za-z_]+", (ast.get_docstring(node) or "").split(".")[0])
                if 3 <= len(words) <= 20:
                    yield words, names


def example(batch: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Example:
    found = sentences(batch)
    often = Counter(word for words, _ in found for word in words)
    numbers = {word: n for n, word in enumerate(sorted(often)) if often[word] > 2}
    batched = [
        [Word(numbers.get(word, -1), list(word.encode()), int(word in names)) for word in words]
        for words, names in found
    ]
    with seeded(seed):
        return Example(Tagger(len(often)).to(dtype), (batched,))
