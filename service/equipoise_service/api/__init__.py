"""The HTTP interface: routes, views, problem documents and plain pages over one running service."""

from equipoise_service.api.app import create_app

__all__ = ["create_app"]
