"""All URLs of the console: the page, its files, its session. For everything else it uses the public API."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Request, Response

from app.console.session import log_in, log_out, renew
from app.console.single_sign_on import begin, finish
from app.docs.assets import POLICY, TEXT_IS_NO_MARKUP, Assets

router = APIRouter(prefix="/console", include_in_schema=False)
router.add_api_route("/session", log_in, methods=["POST"], status_code=204, response_class=Response)
router.add_api_route("/session", log_out, methods=["DELETE"], status_code=204, response_class=Response)
router.add_api_route("/session/token", renew, methods=["POST"])
router.add_api_route("/session/oidc", begin, methods=["POST"])
router.add_api_route("/session/callback", finish, methods=["GET"], response_class=Response)

PAGE = Path(__file__).parent / "page"
assets = Assets({file.name: file for file in sorted(PAGE.iterdir())}, POLICY + TEXT_IS_NO_MARKUP)


@router.get("")
async def get_console(request: Request) -> Response:
    """The page."""
    return await assets.answer(request, "index.html")


@router.get("/{name}")
async def get_console_file(request: Request, name: str) -> Response:
    """One of its scripts, its style sheet, its icon."""
    return await assets.answer(request, name)
