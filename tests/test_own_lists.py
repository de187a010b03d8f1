"""Lists that hold no number and no tensor: each example's own, however many they hold."""

from __future__ import annotations

import pytest
import torch

import autobatch
from tests.oracle import CONFIGURATIONS, assert_matches_loop

WAYS = pytest.mark.parametrize("options", CONFIGURATIONS, ids=str)


def words_of(text):
    words = text.split()
    return {"words": words, "pairs": [(word, {word.upper(): None}) for word in words]}


def named(x):
    one = ["positive" if x > 0 else "negative", "number"]
    return one, ["x", x], ("a", "b"), [], [(one, one), {"a": one}]


def listed(x):
    return ["positive"] if x > 0 else ["not", "positive"]


def ring_of_words(x):
    words = ["positive" if x > 0 else "negative"]
    words.append([words])
    return words, [x, ["word"]]


def within(xs):
    return autobatch.vmap(listed)(xs), autobatch.vmap(named)(xs)[1]


@WAYS
def test_a_list_without_numbers_and_tensors_is_each_examples_own(options):
    """Also where all are of one length: what comes back does not depend on that."""
    for texts in (["a b", "c"], ["a b", "c d"], ["", "c"]):
        assert_matches_loop(words_of, (autobatch.objects(texts),), configurations=[options])
    xs = torch.tensor([1.0, -1.0, 2.0])
    assert_matches_loop(named, (xs,), chunk_sizes=[None, 2], configurations=[options])
    assert_matches_loop(listed, (xs,), chunk_sizes=[None, 2], configurations=[options])
    words, (whole, inner) = autobatch.vmap(ring_of_words, **options)(xs)
    assert [own[0] for own in words] == ["positive", "negative", "positive"]
    assert all(own[1][0] is own for own in words)
    assert torch.equal(whole, xs) and inner == [["word"]] * 3
    own, (names, whole) = autobatch.vmap(within, **options)(xs[None])
    assert own == [[["positive"], ["not", "positive"], ["positive"]]]
    assert names == [["x", "x", "x"]] and torch.equal(whole, xs[None])


def test_a_list_that_all_examples_share_may_come_back_once():
    texts, xs = autobatch.objects(["a", "b"]), torch.ones(2)
    assert autobatch.vmap(lambda text: ["a", ["b"]], out_dims=None)(texts) == ["a", ["b"]]
    both = autobatch.vmap(lambda x: (x, {"b": ["a"]}), out_dims=(0, None))(xs)
    assert both[1] == {"b": ["a"]}
    with pytest.raises(autobatch.OptionError, match="differs by thread"):
        autobatch.vmap(lambda text: [text], out_dims=None)(texts)
