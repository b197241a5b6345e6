"""The role of each weight that a forward uses."""

from __future__ import annotations

from collections.abc import Mapping

from day0.adapters.base.skeleton import Node, Skeleton

from ...weight_roles import role_of

ROLES = ("embedding", "norm", "attention", "router", "expert", "shared_expert", "dense_mlp", "head")
"""Roles of a text model, in the order in which they are told."""

Roles = Mapping[str, Mapping[str, str]]
"""Node -> parameter inside it -> role."""


def roles_of(skeleton: Skeleton) -> Roles:
    """The role of every parameter of the nodes that a forward calls; `unknown` where its name tells none.

    Nodes without parameters are left out.
    """
    experts = any(node.experts or node.feed_forward == "moe" for node in skeleton.nodes)
    return {
        node.name: {name: _role(node, name, experts) for name in node.weights}
        for node in skeleton.nodes
        if node.called and node.weights
    }


def roles_present(roles: Roles) -> tuple[str, ...]:
    """Those of `ROLES` that have a weight, in that order."""
    found = {role for parts in roles.values() for role in parts.values()}
    return tuple(role for role in ROLES if role in found)


def roles_of_vectors(skeleton: Skeleton, roles: Roles) -> frozenset[str]:
    """Roles without any parameter that could be a matrix, such as norms."""
    with_matrix: set[str] = set()
    for node in skeleton.nodes:
        for name, role in roles.get(node.name, {}).items():
            if sum(size > 1 for size in node.weights[name].shape) > 1:
                with_matrix.add(role)
    return frozenset(ROLES) - with_matrix


def _role(node: Node, parameter: str, experts: bool) -> str:
    words = f"{node.name}.{parameter}".lower().split(".")
    role = role_of(tuple("{i}" if word.isdigit() else word for word in words), experts=experts)
    return node.role if role == "unknown" and node.role in ROLES else role
