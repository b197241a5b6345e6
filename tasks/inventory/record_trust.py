"""What inventory knows of a release's trustworthiness: its code, its pickles, where it comes from."""

from __future__ import annotations

from collections.abc import Sequence

from day0.adapters.base.values import Value


class CodeClass(Value):
    """A class that a file defines, with its bases as written."""

    name: str
    line: int
    bases: Sequence[str] = ()


class CodeFile(Value):
    """One Python file, read as text.

    Attributes:
        path: in the release.
        lines: of it.
        classes: at any depth.
        functions: how many, methods included.
        packages: top names of what it imports from outside, sorted.
        relative: files of the release that it imports.
        missing: modules that it imports from the release and the release lacks.
        error: why it could not be parsed; empty where it was.
    """

    path: str
    lines: int
    classes: Sequence[CodeClass] = ()
    functions: int = 0
    packages: Sequence[str] = ()
    relative: Sequence[str] = ()
    missing: Sequence[str] = ()
    error: str = ""


class CodeCall(Value):
    """A call that can do more than compute.

    Attributes:
        kind: `execute process network unpickle import native write`.
        what: the call as written, e.g. `subprocess.run`.
        file: where.
        line: where.
    """

    kind: str
    what: str
    file: str
    line: int


class CodeReference(Value):
    """A class or kernel that the config asks for by name.

    Attributes:
        key: place in the config, e.g. `config.json#/auto_map/AutoModel`.
        target: as written.
        repository: another repository that it comes from; empty for this one.
        found: whether the release's own files define it; None for another repository's.
    """

    key: str
    target: str
    repository: str = ""
    found: bool | None = None


class Code(Value):
    """The release's own code, never run.

    Attributes:
        files: each.
        references: what configs ask for by name.
        kernels: asked for, in the names of the operator vocabulary: `triton:NAME`, `hub:REPO`, `torch:NAME`,
            `package:NAME`.
        packages: top names of everything imported from outside, sorted.
        calls: that can do more than compute, in the order of files and lines.
    """

    files: Sequence[CodeFile] = ()
    references: Sequence[CodeReference] = ()
    kernels: Sequence[str] = ()
    packages: Sequence[str] = ()
    calls: Sequence[CodeCall] = ()


class PickleFile(Value):
    """One pickle, listed by its opcodes and never loaded.

    Attributes:
        path: in the release.
        size: bytes.
        container: `zip`, `bare`, `legacy`, `tar`; empty where it is none of them.
        protocol: of the pickle.
        opcodes: that were walked.
        globals: everything that loading would import, sorted, e.g. `torch._utils._rebuild_tensor_v2`.
        foreign: those that loading plain weights does not need.
        verdict: `plain weights`, `asks for code` or `not listed`.
        status: `convert first` where only pickles hold the weights, `not needed` where other files do.
        error: why it could not be listed to its end; empty where it was.
    """

    path: str
    size: int
    container: str = ""
    protocol: int = 0
    opcodes: int = 0
    globals: Sequence[str] = ()
    foreign: Sequence[str] = ()
    verdict: str = ""
    status: str = ""
    error: str = ""


class SmallFile(Value):
    """One file beside the weights.

    Attributes:
        path: in the release.
        size: bytes.
        content: its hash, `sha256:...` or `git:...` (of the blob that git would make); empty where it is not
            known: files that are not read and for which the source does not vouch.
    """

    path: str
    size: int
    content: str = ""


class Provenance(Value):
    """Where the release says it comes from.

    Attributes:
        licence: as the card names it, e.g. `apache-2.0`; empty where it does not.
        licence_name: of a licence that is `other`.
        licence_link: of the same.
        licence_files: in the release.
        gated: whether the hub hands out files only on request; None where the source does not say.
        base_models: that it was made from, by the card.
        datasets: by the card.
        name_or_path: the folder or model that the config was saved from.
        library: by the card.
        pipeline: by the card.
        languages: by the card.
    """

    licence: str = ""
    licence_name: str = ""
    licence_link: str = ""
    licence_files: Sequence[str] = ()
    gated: bool | None = None
    base_models: Sequence[str] = ()
    datasets: Sequence[str] = ()
    name_or_path: str = ""
    library: str = ""
    pipeline: str = ""
    languages: Sequence[str] = ()
