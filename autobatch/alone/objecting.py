"""What keeps a program from being run as plain Python, in words: the first thing that is met.

In: a call that plain Python might run. Out: the text, with the place in the user's source; empty
where nothing does, or where nobody can say.
"""

from __future__ import annotations

from autobatch.alone.kinds import NotAlone
from autobatch.alone.running import Asked, new_proof
from autobatch.errors import AutobatchError, Diagnostic, render
from autobatch.source import users_place

KEPT = "What keeps {0} from running as plain Python, where it would take less time:"


def objection(asked: Asked, name: str) -> str:
    """What keeps a call of what is called ``name`` from it."""
    computes = any(each.tensor is not None for each in asked.given.values())
    try:
        prints = new_proof(asked, computes).prints
    except NotAlone as error:
        if error.span is None:
            return f"{KEPT.format(name)} {error}."
        return render(Diagnostic(KEPT.format(name), users_place(error.span), str(error)))
    except AutobatchError:
        return ""  # a form of the language that is refused: the run has said so
    if prints is None or not asked.findings.printing.found:
        return ""
    return render(Diagnostic(KEPT.format(name), users_place(prints), "most examples print"))
