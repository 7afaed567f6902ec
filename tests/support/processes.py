"""Two real processes that share a loss, as two trainers would."""

from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed
from torch import Tensor

from forerun.losses import bound_weights, masked_sum

Shared = tuple[float, list[float], float]
"""Weighted global mean, gradient of the process's own row, unweighted global mean."""


def trained_by_two(values: Tensor, mask: Tensor) -> list[Shared]:
    """Row r of the values belongs to process r; what each process ends up with."""
    with TemporaryDirectory() as folder:
        context = get_context("spawn")
        workers = [
            context.Process(target=_train, args=(rank, folder, values[rank].tolist(), mask[rank].tolist()))
            for rank in range(2)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return [torch.load(Path(folder) / f"{rank}.pt") for rank in range(2)]


def _train(rank: int, folder: str, row: list[float], valid: list[bool]) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2, timeout=timedelta(seconds=120)
    )
    values = torch.tensor([row], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([valid])
    piece = masked_sum(values, mask, bound_weights(len(row)))
    global_count = piece.count.clone()
    torch.distributed.all_reduce(global_count)
    share = piece.share(global_count)
    torch.autograd.backward(share)
    loss, unweighted = share.detach().clone(), masked_sum(values.detach(), mask).share(global_count)
    torch.distributed.all_reduce(loss)
    torch.distributed.all_reduce(unweighted)
    assert values.grad is not None
    torch.save((loss.item(), values.grad[0].tolist(), unweighted.item()), Path(folder) / f"{rank}.pt")
    torch.distributed.destroy_process_group()
