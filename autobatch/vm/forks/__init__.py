"""Fork-join calls of a run: ``Forks`` is what the engine asks.

``noting`` runs the operations that fork calls and leave entries (``pending``) with a group;
``joining`` takes groups that have come to a join, ``together`` runs their calls as one, and
``resolving`` puts the results in their places; ``effects`` sees that what runs out of turn is pure.
"""

from autobatch.vm.forks.effects import BeginAgain
from autobatch.vm.forks.joining import Forks

__all__ = ["BeginAgain", "Forks"]
