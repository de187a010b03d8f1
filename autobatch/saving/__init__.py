"""What a batched call keeps for its backward, and where: the option ``save``.

``segments`` computes what is needed once more (``"recompute"``), ``offload`` moves it to the host
(``"offload"``); ``savers`` says which of them is at work in a run.
"""
