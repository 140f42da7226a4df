"""Options that commands share."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import typer

PlacementMode = Literal["actor", "shared", "inline", "strict"]
Placement: TypeAlias = Annotated[
    PlacementMode, typer.Option(help="Where contexts run; inline needs no Ray.")
]
Address: TypeAlias = Annotated[
    str | None, typer.Option(help="A Ray cluster's address; otherwise a local Ray is started.")
]
BaseUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(help="A model server that speaks OpenAI's API, instead of OPENAI_BASE_URL."),
]
