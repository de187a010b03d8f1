"""The lowered functions that runs share: each Python code object is lowered once."""

from __future__ import annotations

import threading
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import FunctionType
from typing import Any, TypeVar

from autobatch.batching.calling.resolving import resolve_object
from autobatch.batching.effects import MUTATING_METHODS, effect_of, is_inplace_name
from autobatch.batching.generators import is_generator
from autobatch.batching.host.own_methods import is_quiet_code
from autobatch.batching.kinds import found_in_class, generated_init, is_plain_code
from autobatch.batching.managers import makes_mode
from autobatch.batching.objects.classes import (
    has_no_init,
    has_own_code,
    holds_alone,
    is_plain_class,
    only_holds,
)
from autobatch.batching.replaced import NOTHING, Replaced, look
from autobatch.batching.switching import switches
from autobatch.errors import AutobatchError
from autobatch.forms import meant
from autobatch.frontend import MISSING, Resolver, lower, lower_function, lower_program, meaning
from autobatch.ir.definitions import definitions_of
from autobatch.ir.fitting import fitted
from autobatch.ir.ops import info
from autobatch.ir.program import Function, Program
from autobatch.passes import PIPELINE, Pass, annotate_liveness, apply_pass, run_passes
from autobatch.passes.fork_calls import fork_calls
from autobatch.passes.inlining import inline_calls
from autobatch.passes.own_calls import inline_own_calls
from autobatch.passes.specialised_calls import Constants, copied, specialise_calls
from autobatch.passes.tail_calls import loop_tail_calls
from autobatch.structure import own_attribute
from autobatch.transforms.records import derives, made_of
from autobatch.vm import aliasing
from autobatch.vm.aliasing import Sight, Told, tells_known
from autobatch.vm.asking import Asking, Asks, of_opaque
from autobatch.vm.code import Code
from autobatch.vm.induction import Induction
from autobatch.vm.kept_kinds import names_of_fields
from autobatch.vm.knowledge import OPAQUE_METHODS, Knowledge
from autobatch.vm.nested import Nested, captures
from autobatch.vm.purity import (
    IMPURE,
    LEAST,
    PLAIN_MAKING,
    Analysis,
    Derived,
    Known,
    Lookup,
    Meant,
    Names,
    Purity,
    Verdict,
    different,
    supposed,
)
from autobatch.vm.scoring import is_of_distributions
from autobatch.vm.settled import Sites, Targets
from autobatch.vm.subjects import Subjects


def function_of(value: object) -> tuple[FunctionType, object] | None:
    """The Python function behind a program callable, and its receiver where that is known."""
    target = resolve_object(value, [], {})
    if target.effect == "construct":
        made = target.callee.__init__
        return (made, MISSING) if isinstance(made, types.FunctionType) else None
    if target.effect != "program" or not isinstance(target.callee, FunctionType):
        return None
    first = target.args[0].value if target.args else None
    return target.callee, getattr(first, "obj", MISSING)


def looked_at(callee: Any) -> tuple[FunctionType, Any] | None:
    """The same of what is only looked into, as a function that yields is."""
    return (callee, MISSING) if is_generator(callee) else function_of(callee)


def is_looked_into(function: FunctionType) -> bool:
    return is_generator(function) or is_plain_code(function.__code__)


MOST_LIBRARIES = 8
"""Sets of passes whose functions are kept."""
MOST_COPIES = 4
"""Copies of a function for constants that calls pass."""
MOST_VERDICTS = 4
"""Judgements of a function that are kept: of closures, of what its names have meant."""


T = TypeVar("T")


@dataclass(slots=True, eq=False, repr=False)
class Library:
    """Lowers Python functions on demand and keeps what it has made; safe for host threads.

    ``suspended`` are those that yield, which are looked into and not run.
    ``writes``: its functions may write to what existed before the call. ``others`` are the
    libraries of the same process under other ``passes``, or another ``writes``, or where other
    functions of torch's are ``replaced``.
    """

    codes: dict[tuple[object, ...], Code] = field(default_factory=dict)
    suspended: dict[tuple[object, ...], Code] = field(default_factory=dict)
    nested: dict[int, Code] = field(default_factory=dict)
    captures: dict[int, tuple[Function, Mapping[str, Function]]] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    lowering: set[Any] = field(default_factory=set)
    purities: Induction[Purity] = field(
        default_factory=lambda: Induction(LEAST, supposing=supposed)
    )
    sights: Induction[Told] = field(default_factory=lambda: Induction(aliasing.LEAST, joins=True))
    questions: Induction[Asks] = field(default_factory=lambda: Induction(Asks.NEVER, joins=True))
    inlining: set[int] = field(default_factory=set)
    trail: list[list[Lookup]] = field(default_factory=list)
    passes: tuple[Pass, ...] = PIPELINE
    writes: bool = False
    replaced: Replaced = NOTHING
    others: dict[tuple[tuple[Pass, ...], bool, Replaced], Library] = field(default_factory=dict)
    subjects: Subjects[Code] = field(default_factory=Subjects)

    def under(self, passes: tuple[Pass, ...] | None, writes: bool = False) -> Library:
        """The library whose functions have been through ``passes``; None for the pipeline.

        It is the one for what is replaced now.
        """
        now = look()
        if passes is None and writes is self.writes and now is self.replaced:
            return self  # the commonest
        key = (self.passes if passes is None else passes, writes, now)
        if key == (self.passes, self.writes, self.replaced):
            return self
        found = self.others.get(key)
        if found is not None:
            return found
        with self.lock:
            others = [other for other in self.others if (other[2] is NOTHING) is (now is NOTHING)]
            if key not in self.others and len(others) >= MOST_LIBRARIES:
                del self.others[others[0]]
            made = Library(passes=key[0], writes=writes, replaced=now)
            return self.others.setdefault(key, made)

    def passed(self, function: Function) -> Function:
        return run_passes(function, self.passes)

    def optimised(self, function: Function, stage: str = "lowering") -> Function:
        """The function after the passes, with what lives at its blocks, as engines need it."""
        function = run_passes(function, self.passes, stage)
        return function if function.live_in else apply_pass(annotate_liveness, function)

    @property
    def methods(self) -> frozenset[str]:
        """Names of methods that are taken to be torch's, or a builtin's."""
        return OPAQUE_METHODS - self.replaced.names if self.replaced.names else OPAQUE_METHODS

    @property
    def resolver(self) -> Resolver:
        return Resolver(
            self.classify, self.methods, function_of, makes_mode, switches, self.writes, derives
        )

    def classify(self, value: object) -> str:
        """Whether a call runs a program function, and whether that is a single block."""
        wrapped = meant(value)
        if effect_of(wrapped) != "program" or is_generator(wrapped):
            return "opaque"
        if only_holds(wrapped) or (isinstance(wrapped, FunctionType) and self.is_straight(wrapped)):
            return "inline"
        return "program"

    def is_straight(self, function: FunctionType) -> bool:
        if (function.__code__.co_filename, function.__code__) in self.lowering:
            return False  # it calls itself
        try:
            return self.code_of(function).is_straight
        except AutobatchError:
            return False  # what is wrong is told when the call is reached

    def code_of(self, function: FunctionType, receiver: object = MISSING) -> Code:
        """The lowering of a Python function; ``receiver`` is its first argument, if known."""
        subject = own_attribute(function, "__autobatch_stands_for__")
        if subject is None:
            return self.code_as(function, receiver)
        return self.subjects.code(subject, lambda: self.code_as(function, receiver, subject))

    def code_as(self, function: FunctionType, receiver: object, *subject: object) -> Code:
        """The same for all functions of equal code, of all subjects whose calls are of one kind.

        And to which what has decided the lowering means the same (see ``frontend.decided``).
        """
        kinds = [self.classify(each) for each in subject]
        key: tuple[object, ...] = (function.__code__.co_filename, function.__code__, *kinds)
        while (code := self.codes.get(key)) is not None:  # two files' code may be equal
            if not code.decided:
                return code
            now = tuple([meaning(function, receiver, path) for path, _ in code.decided])
            if all(one is other for one, (_, other) in zip(now, code.decided, strict=True)):
                self.rest_on(code, function, receiver)
                return code
            key = (*key, now)
        with self.lock:
            code = self.codes.get(key)
            if code is None:
                self.lowering.add(key[:2])
                try:
                    code = self.codes[key] = self.lowered_as(function, receiver)
                finally:
                    self.lowering.discard(key[:2])
        self.rest_on(code, function, receiver)
        return code

    def rest_on(self, code: Code, function: FunctionType, receiver: object) -> None:
        """What is being judged rests on what decided the lowering of a function."""
        if self.trail and code.decided:
            with self.lock:
                if self.trail:
                    seen = Meant(function, receiver)
                    self.trail[-1] += [(seen, path, found) for path, found in code.decided]

    def lowered_as(self, function: FunctionType, receiver: object) -> Code:
        lowered = lower(function, self.resolver, receiver=receiver)
        code = self.made(self.optimised(lowered.function))
        code.decided = tuple(
            (path, found)
            for path, found in lowered.decided
            if meaning(function, receiver, path) is found
        )
        return code

    def purity_of(self, callee: object) -> Purity | None:
        """The purity of a program function that is known; None for what is no such thing."""
        if type(callee) is Nested:
            purity = self.purity(self.code_for(callee.function), self.names_within(callee))
            return purity if callee.function.yields is None else gives_anything(purity)
        made = callee if type(callee) is Derived else made_of(callee)
        if made is not None:
            return self.purity_of(made.function)
        found = meant(callee)
        if effect_of(found) != "program":
            return None
        if isinstance(found, type) and not is_plain_class(found):
            return IMPURE
        if isinstance(found, type) and (generated_init(found) or has_no_init(found)):
            return IMPURE if found_in_class(found, "__post_init__") is not None else PLAIN_MAKING
        program = looked_at(found)
        if program is None:
            return IMPURE
        function, receiver = program
        try:
            code = self.looked_into(function, receiver)
        except AutobatchError:
            return IMPURE
        purity = self.purity(code, Names.of(function, receiver))
        if is_generator(function):
            purity = gives_anything(purity)
        if isinstance(found, type):  # it may write the instance, which is new
            itself, *others = code.function.params
            writes, sure = purity.writes - {itself.name}, purity.sure - {itself.name}
            params = tuple(others)
            purity = replace(purity, writes=writes, sure=sure, params=params, makes=True)
        return purity

    def looked_into(self, function: FunctionType, receiver: object) -> Code:
        """The code of a function whose effects are asked for; one that yields is not run so."""
        if not is_generator(function):
            return self.code_of(function, receiver)
        key = (function.__code__.co_filename, function.__code__, receiver is MISSING)
        code = self.suspended.get(key)
        if code is None:
            lowered = lower_function(function, self.resolver, receiver=receiver, yields=True)
            code = self.suspended[key] = self.made(lowered)
        return code

    def has_effects(
        self, function: FunctionType, obj: object, draws: bool = False, makes: bool = False
    ) -> bool:
        """Whether a method may do what can be seen after it, to its receiver among others.

        What cannot be judged does. ``obj`` is the receiver, None where there are several.
        ``draws``: to draw is an effect, too. ``makes``: it is for a receiver that is new.
        """
        receiver = MISSING if obj is None else obj
        if not is_looked_into(function):
            return not is_quiet_code(function)
        try:
            code = self.looked_into(function, receiver)
        except AutobatchError:
            return True
        names = Names.of(function, receiver)
        purity = self.purity(code, names)
        known = Known(code.function, names, code.definitions)
        own = known.function.params[:1] if makes and sets_only_itself(known) else ()
        written = purity.writes - {param.name for param in own}
        if not purity.is_pure or written or (draws and purity.draws):
            return True
        return not known.calls_only(self.methods)

    def purity(self, code: Code, names: Names) -> Purity:
        """The purity of lowered code; what depends on an open question is not kept."""
        if (code.base or code).has_effects:
            return IMPURE

        def look(known: Known) -> Purity:
            return Analysis(known, self.purity_of, self.methods.__contains__).purity()

        return self.induced(self.purities, code, code.purities, names, look)

    def induced(
        self,
        induction: Induction[T],
        code: Code,
        verdicts: list[Verdict],
        names: Names,
        look: Callable[[Known], T],
    ) -> T:
        """What a look at a function finds, by induction where it comes back to itself."""

        def judge(known: Known) -> tuple[T, bool]:
            return induction.judged(code, known, partial(look, known))

        found: T = self.judged(code, verdicts, names, judge)
        return found

    def told(self, code: Code, names: Names) -> Told:
        """Whether a function, or one that it calls, can tell two names for a tensor from two."""
        code = code.base or code

        def look(known: Known) -> Told:
            return Sight(known, self.callee_told, self.methods.__contains__).told()

        return self.induced(self.sights, code, code.sights, names, look)

    def callee_told(self, callee: object) -> Told:
        """The same of what is known to be called; what has code that is not lowered may tell."""
        if type(callee) is Nested:
            return self.told(self.code_for(callee.function), self.names_within(callee))
        found = meant(callee)
        if made_of(callee) is not None or effect_of(found) != "program":
            return Told(tells_known(found))
        if is_of_distributions(found):
            return aliasing.LEAST
        if isinstance(found, type):
            return Told(not holds_alone(found), named=names_of_fields(found))
        lowered = self.lowered(found)
        return aliasing.TELLS if lowered is None else self.told(*lowered)

    def asks(self, code: Code, names: Names) -> Asks:
        """Whether a function, or one that it names, can see how tensors lie in memory."""
        code = code.base or code

        def look(known: Known) -> Asks:
            return Asking(known, self.callee_asks, self.methods.__contains__).asks()

        return self.induced(self.questions, code, code.questions, names, look)

    def callee_asks(self, callee: object) -> Asks:
        """The same of what is known to be named; what has code that is not lowered may ask."""
        if type(callee) is Nested:
            return self.asks(self.code_for(callee.function), self.names_within(callee))
        made = callee if type(callee) is Derived else made_of(callee)
        if made is not None:
            return self.callee_asks(made.function)
        found = meant(callee)
        if not callable(found):
            return Asks.NEVER
        if effect_of(found) != "program":
            return of_opaque(found)
        if isinstance(found, type):
            return Asks.ALWAYS if has_own_code(found) else Asks.NEVER
        lowered = self.lowered(found)
        return Asks.ALWAYS if lowered is None else self.asks(*lowered)

    def with_forks(
        self, code: Code, names: Names, seeded: bool = False, inline: bool = True
    ) -> Code:
        """The code with its calls forked, where several can run as one, and its purity noted.

        ``seeded``: calls that draw, too. ``inline``: other calls are inlined, unless ``seeded``,
        since what is drawn depends on the call.
        """

        def fork(known: Known) -> tuple[Code, bool]:
            purity = self.purity(code, names)
            knowledge = Knowledge(known, purity, self.purity_of, seeded, self.methods)
            inside = Targets(self, code, known, purity) if inline and not seeded else None
            changed = code.function
            if inside is not None:
                changed = loop_tail_calls(changed, inside.itself)
            changed = fork_calls(changed, knowledge)
            if inside is not None:
                changed = specialise_calls(changed, inside.as_lowered, inside.copy)
                changed = self.with_calls_inside(code, changed, inside)
            made = (
                replace(code)
                if changed is code.function
                else self.made(self.optimised(changed, "fork_calls"))
            )
            made.base, made.purity = code.base or code, purity
            made.known = Known(made.function, names, definitions_of(made.function)).places()
            return made, True

        verdicts = code.forks.setdefault((seeded, inline), [])
        forked: Code = self.judged(code, verdicts, names, fork)
        return forked

    def with_loops_inside(self, code: Code, names: Names) -> Code:
        """The code with calls inlined, too, of functions that have loops and one call.

        So threads that leave such a loop go on, and do not wait for others.
        """

        def take_in(known: Known) -> tuple[Code, bool]:
            sites = Sites.of(self, code, names)
            inside = Targets(self, code, known, self.purity(code, names), sites=sites)
            changed, before = loop_tail_calls(code.function, inside.itself), 0
            made: Function | None = None
            while made is not changed:
                made, before = changed, before + 1
                again = Known(made, names, definitions_of(made))
                changed = inline_calls(made, replace(inside, known=again).callee, before)
            if changed is code.function:
                return code, True
            found = self.made(self.optimised(changed, "inlining"))
            found.base = code.base or code
            return found, True

        taken: Code = self.judged(code, code.inlined, names, take_in)
        return taken

    def with_calls_inside(self, code: Code, function: Function, targets: Targets[Code]) -> Function:
        """A function of ``code``'s with what short calls run in their places."""
        self.inlining.add(id(code))
        try:
            return inline_own_calls(inline_calls(function, targets.callee))
        finally:
            self.inlining.discard(id(code))

    def function_in(self, code: Code) -> Function:
        """The function that code is of, as lowering gave it."""
        return code.function

    def copy_for(
        self, function: FunctionType, code: Code, constants: Constants
    ) -> FunctionType | None:
        """A function for calls that pass constants; None if there are as many as there may be.

        It is a Python function of the same text, known by its code object, which tells it apart;
        so whoever comes to call it elsewhere calls what it is a copy of.
        """
        made = code.copies.get(constants)
        if made is None:
            if len(code.copies) >= MOST_COPIES:
                return None
            old = function.__code__
            made = old.replace(co_consts=(*old.co_consts, ("specialised", constants)))
            optimised = self.optimised(copied(code.function, constants), "specialise_calls")
            kept = self.codes[made.co_filename, made] = self.made(optimised)
            kept.decided = code.decided
            code.copies[constants] = made
        name, given, closure = function.__name__, function.__defaults__, function.__closure__
        copy = FunctionType(made, function.__globals__, name, given, closure)
        copy.__kwdefaults__, copy.__qualname__ = function.__kwdefaults__, function.__qualname__
        copy.__module__ = function.__module__
        return copy

    def taken_in(self, code: Code, names: Names) -> Function | None:
        """A function as callers may take it in; None if that is being found out already."""
        return None if id(code) in self.inlining else self.with_forks(code, names).function

    def lowered(self, callee: object) -> tuple[Code, Names] | None:
        """The code of a program callable and what its names mean; None if it has no code."""
        if type(callee) is Nested:
            return self.code_for(callee.function), self.names_within(callee)
        program = function_of(callee)
        if program is None:
            return None
        try:
            return self.code_of(*program), Names.of(*program)
        except AutobatchError:
            return None  # what is wrong is told when the call is reached

    def known(self, code: Code, names: Names) -> Known:
        return Known(code.function, names, code.definitions)

    def judged(
        self,
        code: Code,
        verdicts: list[Verdict],
        names: Names,
        judge: Callable[[Known], tuple[Any, bool]],
    ) -> Any:
        """A judgement of a function that holds now, kept or new; ``judge`` says whether to keep it.

        It rests on what the names meant that it looked up, in the function and in its callees.
        """
        known = Known(code.function, names, code.definitions)
        verdict = next((each for each in verdicts if each.holds(known)), None)
        if verdict is None:
            with self.lock:
                self.trail.append([])
                try:
                    value, keep = judge(known)
                finally:
                    others = self.trail.pop()
                verdict = Verdict.of(value, known, different(others))
                if keep:
                    verdicts[:] = [verdict, *verdicts[: MOST_VERDICTS - 1]]
                if self.trail:
                    self.trail[-1] += verdict.rests_on(known)
        elif self.trail:
            with self.lock:
                if self.trail:
                    self.trail[-1] += verdict.rests_on(known)
        return verdict.value

    def turns_out_impure(self, code: Code) -> None:
        """A function that was taken to be pure is not."""
        (code.base or code).has_effects = True

    def code_for(self, function: Function) -> Code:
        """The code of a function that a program defines."""
        code = self.nested.get(id(function))
        if code is None or code.function is not function:
            code = self.nested[id(function)] = Code.of(function)
        return code

    def made(self, function: Function) -> Code:
        """The code of a function; what the functions within it capture is noted."""
        self.captures.update((id(inner), (inner, found)) for inner, found in captures(function))
        return Code.of(function)

    def names_within(self, nested: Nested) -> Names:
        """What the names of a function mean that a program defines."""
        function, found = self.captures.get(id(nested.function), (None, {}))
        if function is not nested.function:
            return Names(nested.namespace)
        namespace = nested.namespace
        own = {name: Nested(inner, namespace) for name, inner in found.items()}
        return Names(namespace, nested=own)

    def program(self, callable_: Callable[..., Any]) -> Program:
        """The whole program of a callable: its function and all that it can be seen to call.

        Its functions are as the passes leave them.
        """
        found = function_of(callable_)
        function, receiver = found if found is not None else (callable_, MISSING)
        program = lower_program(function, self.resolver, receiver=receiver, transform=self.passed)
        return fitted(Program(program.functions, program.entry, callable_, program.out_vars))


def gives_anything(purity: Purity) -> Purity:
    """The purity of a function that yields: it gives what may be anything that it has."""
    given = frozenset(param.name for param in purity.params)
    return replace(purity, returns=given, outer=True)


def sets_only_itself(known: Known) -> bool:
    """Whether an ``__init__`` writes nothing but attributes of its instance, which is new.

    What it puts into these existed before, perhaps: ``self.row = row; self.row.append(1)``.
    """
    names = {param.name for param in known.function.params[:1]}
    for block in known.function.blocks:
        for op in block.ops:
            is_own = op.name == "setattr" and op.args[0] in names
            if info(op.name).effect == "writes" and not is_own:
                return False
    for callee, _ in known.calls():
        found, method = known.looked_up(callee), known.method(callee)
        if found is not MISSING:
            if effect_of(found) in ("program", "unknown", "write"):
                return False
        elif method is None or method[1] in MUTATING_METHODS or is_inplace_name(method[1]):
            return False
    return True
