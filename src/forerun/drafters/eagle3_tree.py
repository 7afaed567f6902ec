"""EAGLE's dynamic tree over an EAGLE-3 network: the most probable paths are continued, and the best nodes kept.

At every depth the nodes with the most probable paths among the last level's get children, all in one pass of the
network, in which a node reads the committed pairs and the nodes on its own path. Chosen candidates (the default) are
ranked at the end: the nodes with the most probable paths are kept, whatever their depth. Since a path is at most as
probable as its beginning, they are a tree. (EAGLE-2, arXiv 2406.16858, section 4; EAGLE-3 keeps it.)

Paths are ranked by the processed draft law, where EAGLE takes the raw one: at temperatures other than 1, and behind
penalties or a grammar, it is the processed law that says what the target will take. Any ranking is exact.

Drawn candidates may not be dropped for what they are, so there the nodes are shared out before they are drawn: each
level gets the same number, in groups of siblings behind the most probable paths of the level before.

A round may also ask for a tree by the children of its nodes, depth by depth. Then every node of a level has the same
number of children, and nothing is ranked or dropped.
"""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from forerun.distributions import Processing
from forerun.drafters.declarations import Dependence, Need, Saving
from forerun.drafters.eagle3 import Eagle3Context, Eagle3Network
from forerun.drafters.growing_tree import GrowingTree
from forerun.drafters.network_drafter import NetworkDrafter
from forerun.drafters.tree import TreeDrafter, TreeDrafterSession
from forerun.errors import ForerunError
from forerun.verification import ROOT, Candidates, TreeProposal


@final
class Eagle3Tree(TreeDrafter):
    """An EAGLE-3 drafter that proposes trees.

    Args:
        drafter: holds the network, laid out for its target; shared, not copied.
        depth: most tokens in a row; ``None`` for the network's block size, which is the largest.
        top_k: children of a node, and for chosen candidates nodes with children at each depth.
        num_nodes: most nodes of a tree.
        candidates: how siblings are chosen; drawn ones need ``num_nodes // depth`` to be at least 1.

    Raises:
        ForerunError: the network is of another architecture, or a number is out of range.
    """

    def __init__(
        self,
        drafter: NetworkDrafter,
        *,
        depth: int | None = None,
        top_k: int = 10,
        num_nodes: int = 59,
        candidates: Candidates = Candidates.DETERMINISTIC,
    ) -> None:
        if not isinstance(drafter.network, Eagle3Network):
            raise ForerunError(f"a dynamic tree needs an EAGLE-3 drafter; {drafter.name} is of another architecture")
        levels = drafter.config.block_size if depth is None else depth
        for name, value, largest in (
            ("depth", levels, drafter.config.block_size),
            ("top_k", top_k, drafter.config.draft_vocab_size),
        ):
            if not 1 <= value <= largest:
                raise ForerunError(f"{name} is {value}; for this drafter give 1 to {largest}")
        if num_nodes < levels:
            raise ForerunError(f"num_nodes is {num_nodes}; give at least {levels}, so that a path can have that depth")
        self.drafter = drafter
        self.network = drafter.network
        self.depth, self.top_k, self.num_nodes = levels, top_k, num_nodes
        self.candidates = candidates

    @property
    def name(self) -> str:
        """``eagle3-tree:``, depth, children and nodes."""
        return f"eagle3-tree:{self.depth}x{self.top_k}:{self.num_nodes}"

    @property
    def max_horizon(self) -> int:
        """Depth of the tree."""
        return self.depth

    @property
    def captured_layers(self) -> tuple[int, ...]:
        """Of the network."""
        return self.drafter.captured_layers

    @property
    def max_positions(self) -> int | None:
        """Of the network."""
        return self.drafter.max_positions

    @property
    def needs(self) -> frozenset[Need]:
        """Of the network."""
        return self.drafter.needs

    dependence = Dependence.FULL
    saving = Saving.BOTH

    def max_nodes(self, depth: int) -> int:
        """Of what can grow, the best ``num_nodes``; drawn candidates take the same share for each level."""
        if self.candidates is Candidates.DETERMINISTIC:
            return min(self.num_nodes, self.top_k + (depth - 1) * self.top_k**2)
        return depth * (self.num_nodes // self.depth)

    def family_sizes(self, level: int) -> list[int]:
        """Children of the most probable nodes of a level (from 0, the last committed token), at most."""
        if self.candidates is Candidates.DETERMINISTIC:
            return [self.top_k] * (1 if level == 0 else self.top_k)
        share = self.num_nodes // self.depth
        whole, rest = divmod(share, self.top_k)
        sizes = [self.top_k] * whole + ([rest] if rest else [])
        return sizes[:1] if level == 0 else sizes

    def new_session(self) -> Eagle3TreeSession:
        """State for one request."""
        return Eagle3TreeSession(self)


@final
class Eagle3TreeSession(TreeDrafterSession):
    """What the network remembers of one request.

    Args:
        drafter: whose session it is.
    """

    def __init__(self, drafter: Eagle3Tree) -> None:
        self._drafter = drafter
        base = drafter.drafter
        self._context = Eagle3Context(drafter.network, base.borrowed, base.heads[0])

    @property
    def length(self) -> int:
        """Tokens taken in."""
        return self._context.length

    @torch.inference_mode()
    def extend(self, token_ids: Int[Tensor, " length"], features: Float[Tensor, "length layers hidden"]) -> None:
        """See :class:`ProposerSession`."""
        self._context.extend(token_ids.to(features.device), features)

    @torch.inference_mode()
    def propose_tree(
        self,
        last_token: int,
        depth: int,
        processing: Processing,
        *,
        uniforms: Float64[Tensor, " nodes"],
        branching: tuple[int, ...] | None = None,
    ) -> TreeProposal:
        """See :class:`TreeDrafterSession`. One pass of the network for each depth, over the nodes that get children.

        In a tree that is asked for all nodes get children, so there is nothing to rank.
        """
        drafter, context = self._drafter, self._context
        tree = GrowingTree(drafter.candidates)
        logits, hidden = context.begin(last_token)
        sizes = drafter.family_sizes(0) if branching is None else [branching[0]]
        tree.grow([ROOT], drafter.drafter.vocabulary.spread(logits), sizes, processing, uniforms)
        fed_back = {ROOT: hidden[0]}  # of every node with children, what its children get in place of g
        sight = _Sight(context, drafter.network.config.layer.window)
        for level in range(1, depth):
            sizes = drafter.family_sizes(level) if branching is None else [branching[level]] * len(tree.leaves)
            chosen = tree.best(tree.leaves, len(sizes))
            if not chosen:
                break
            parents = [tree.parents[node] for node in chosen]
            logits, hidden = context.step(
                torch.stack([fed_back[parent] for parent in parents]),
                torch.tensor([tree.token_ids[node] for node in chosen]),
                level,
                sight.of(chosen, parents, level),
            )
            fed_back |= dict(zip(chosen, hidden, strict=True))
            tree.grow(chosen, drafter.drafter.vocabulary.spread(logits), sizes, processing, uniforms)
        ranked = branching is None and drafter.candidates is Candidates.DETERMINISTIC
        chosen_only = drafter.num_nodes if ranked else None
        return tree.proposal(drafter.drafter.config.target_vocab_size, num_nodes=chosen_only)


@final
class _Sight:
    """Which keys a node reads: those of committed pairs, of the last committed token, and of its own path.

    Args:
        context: whose keys; the last committed token's is the last one.
        window: as in ``LayerShape``.
    """

    def __init__(self, context: Eagle3Context, window: int | None) -> None:
        self._context, self._window = context, window
        self._committed = context.num_keys
        self._paths: dict[int, list[int]] = {ROOT: []}  # places of the keys of a node's path

    def of(self, nodes: list[int], parents: list[int], level: int) -> Bool[Tensor, "nodes keys"]:
        """Mask for the nodes of one level, whose own keys come next.

        Args:
            nodes: to be read in this order.
            parents: of each.
            level: depth of the nodes, from 1.
        """
        first = self._context.num_keys
        visible = torch.zeros(len(nodes), first + len(nodes), dtype=torch.bool)
        oldest = 0 if self._window is None else max(self._committed + level - self._window, 0)
        visible[:, oldest : self._committed] = True
        for row, (node, parent) in enumerate(zip(nodes, parents, strict=True)):
            path = [*self._paths[parent], first + row]
            self._paths[node] = path
            visible[row, path if self._window is None else path[-self._window :]] = True
        return visible.to(self._context.device)
