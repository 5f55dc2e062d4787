"""Google Drive: what lies in a shared folder, and the file behind its pages; gdown knows how to read them.

gdown's own transfer is not used: it goes on with a part without seeing whether the file is still the same.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from datasets.errors import Unusable

if TYPE_CHECKING:
    import requests

FILE = "https://drive.google.com/uc?id="
FOLDER = re.compile(r"https://drive\.google\.com/drive/(?:u/\d+/)?folders/([-\w]+)")
# Drive answers programs of other names with other pages; this is the name that gdown uses.
BROWSER = (
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_10_1) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/39.0.2171.95 Safari/537.36"
)
PAGES = 3
"""How many pages may stand before a file; one does, for files too large to be scanned for viruses."""
PAGE_BYTES = 1 << 20


def is_folder(address: str) -> bool:
    return FOLDER.match(address) is not None


def is_file(address: str) -> bool:
    return address.startswith("https://drive.google.com/") and not is_folder(address)


def listing(address: str, timeout: float) -> dict[str, str]:
    """{path: address} of the files in a shared folder and the folders in it.

    Raises Unusable with the reason, or what requests raises.
    """
    import gdown
    from requests import RequestException

    folder = FOLDER.match(address)
    assert folder is not None, address
    try:
        found = gdown.download_folder(
            id=folder[1], quiet=True, use_cookies=False, skip_download=True, timeout=timeout
        )
    except RequestException:
        raise
    except Exception as error:  # pages that it does not know make it fail in many ways
        raise Unusable(_one_line(error)) from None
    files = {str(file.path): f"{FILE}{file.id}" for file in found if not isinstance(file, str)}
    if not files:
        raise Unusable("the folder is empty, or not shared")
    return files


def answer(
    session: requests.Session, address: str, headers: dict[str, str], timeout: float
) -> requests.Response:
    """Drive's answer with the file itself, after the page that asks whether one really wants it."""
    from gdown.download import get_url_from_gdrive_confirmation
    from gdown.parse_url import parse_url

    identity, _ = parse_url(url=address)
    url = f"{FILE}{identity}" if identity else address
    session.headers["User-Agent"] = BROWSER
    without_part = {key: value for key, value in headers.items() if key != "Range"}
    for _ in range(PAGES):
        # A part is asked for only once the file is found: the page may be too short to have that part.
        response = session.get(url, headers=without_part, stream=True, timeout=timeout)
        if not response.ok:
            return response
        if not response.headers.get("Content-Type", "").startswith("text/html"):
            if headers == without_part:
                return response
            response.close()
            return session.get(url, headers=headers, stream=True, timeout=timeout)
        with response:
            page = next(response.iter_content(PAGE_BYTES), b"").decode("utf-8", "replace")
        try:
            url = get_url_from_gdrive_confirmation(page)
        except Exception as error:  # the same
            raise Unusable(f"Google Drive shows a page in place of the file: {_one_line(error)}") from None
    raise Unusable("Google Drive asks again and again whether the file is wanted")


def _one_line(error: Exception) -> str:
    text = re.sub(r"<[^>]*>", "", " ".join(str(error).split()))
    return text[:200] or type(error).__name__
