"""What keeps a program from being run as plain Python, in words: all that is met, and what helps.

In: a call that plain Python might run. Out: the text, with the places in the user's source; empty
where nothing does, or where nobody can say.
"""

from __future__ import annotations

from autobatch.alone.kinds import ASKED, DRAWS, MAKES_MODULE, NotAlone, Reasons
from autobatch.alone.proof import Proof
from autobatch.alone.running import Asked, new_proof
from autobatch.errors import AutobatchError, Diagnostic, render
from autobatch.source import Span, excerpt, users_place

KEPT = "What keeps {0} from running as plain Python, where it would take less time:"
MOST = 4
"""Reasons that are shown, each where it is met first."""
INSTEAD = {
    "it may write what existed before": (
        "what a program writes, it makes itself (`cache = {}` in it), or gets as an argument of "
        "the example"
    ),
    "it may write a tensor": "`x.clone()` is the program's own to write",
    "it makes text of what may be a tensor": "text is made of `x.item()`",
    MAKES_MODULE: (
        "one that existed before, or a function of what its `forward` reads, is looked into"
    ),
    DRAWS: "`random.Random(number)`, or numpy's `default_rng(number)`, made in it is its own",
}
"""What to write instead, by the reason."""
INSTEAD_OF_NAMES = (
    "an attribute of an object of one's own is told apart by a name that tensors do not have "
    "(`kind`, not `type`)"
)
ANYWAY = (
    "autobatch.per_thread on the function that works on objects runs it as it is, example by "
    "example."
)


def objection(asked: Asked, name: str) -> str:
    """What keeps a call of what is called ``name`` from it."""
    gets_tensors = any(each.tensor is not None for each in asked.given.values())
    try:
        proof, reasons = tried(asked, gets_tensors)
        if reasons and not gets_tensors:  # it may make some: it is measured, then, and run so
            proof, others = tried(asked, True)
            reasons = others and ({k: e for k, e in others.items() if k in reasons} or others)
    except AutobatchError:
        return ""  # a form of the language that is refused: the run has said so
    if reasons:
        return told(KEPT.format(name), reasons)
    if proof is None or proof.gives_up is None or not asked.findings.printing.found:
        return ""
    does = "print" if proof.prints else "make text of a tensor that may have a gradient"
    place = users_place(proof.gives_up)
    return render(Diagnostic(KEPT.format(name), place, f"most examples {does}"))


def tried(asked: Asked, computes: bool) -> tuple[Proof | None, Reasons]:
    """The proof, or all that there is against it."""
    reasons: Reasons = {}
    try:
        return new_proof(asked, computes, reasons), reasons
    except NotAlone as error:
        reasons.setdefault((str(error), error.span), error)
        return None, reasons


def told(headline: str, reasons: Reasons) -> str:
    """All of some reasons, each at its place, and what to write instead."""
    first = dict(reversed(reasons))
    shown = [(text, first[text]) for text in dict.fromkeys(text for text, _ in reasons)][:MOST]
    if len(reasons) == 1 and shown[0][1] is None:
        return f"{headline} {shown[0][0]}."
    lines = [headline, *(placed(text, span) for text, span in shown)]
    if len(reasons) > len(shown):
        lines.append(f"  and {len(reasons) - len(shown)} more, most of them like these")
    advice = dict.fromkeys(filter(None, (instead(text) for text, _ in shown)))
    lines += [f"  Hint: {each}." for each in advice]
    return "\n".join([*lines, f"  Hint: {ANYWAY}"])


def instead(reason: str) -> str:
    """What to write instead; empty where nothing is known that helps."""
    return INSTEAD_OF_NAMES if reason.endswith(ASKED) else INSTEAD.get(reason, "")


def placed(text: str, span: Span | None) -> str:
    return f"  {text}." if span is None else excerpt(users_place(span), text)
