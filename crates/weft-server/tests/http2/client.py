"""Asks for what lies in the folder that http2.rs serves, with httpx, and says so at the end.

Arguments: the URL of the server, the certificate of the authority that has signed for it.
"""

import asyncio
import contextlib
import ssl
import sys

import httpx

URL, AUTHORITY = sys.argv[1:]

# All files have the same contents: bytes that do not repeat with any power of two.
LARGE = bytes(at % 251 for at in range(20 << 20))

# The target, the method, fields of the request; the status, and what the body is.
CASES = [
    ("/1000", "GET", {}, 200, LARGE[:1000]),
    ("/1000", "HEAD", {}, 200, b""),
    ("/1000", "GET", {"range": "bytes=0-9"}, 206, LARGE[:10]),
    ("/1000", "GET", {"range": "bytes=990-"}, 206, LARGE[990:1000]),
    ("/1000", "GET", {"range": "bytes=-1"}, 206, LARGE[999:1000]),
    ("/1000", "GET", {"range": "bytes=1000-"}, 416, None),
    ("/20971520", "GET", {"range": "bytes=10000000-19999999"}, 206, LARGE[10000000:20000000]),
    ("/20971520", "GET", {}, 200, LARGE),
    ("/0", "GET", {}, 200, b""),
    ("/nothing", "GET", {}, 404, b"<h1>Nothing</h1>\n"),
]


async def main():
    # Whether there is a proxy does not concern these requests.
    options = {"http2": True, "trust_env": False, "timeout": 60}
    async with httpx.AsyncClient(base_url=URL, verify=AUTHORITY, **options) as client:
        streams = []

        def note(response):
            assert response.http_version == "HTTP/2", response.http_version
            streams.append(response.extensions["stream_id"])

        for target, method, fields, status, body in CASES:
            response = await client.request(method, target, headers=fields)
            note(response)
            assert response.status_code == status, (target, fields, response.status_code)
            assert body is None or response.content == body, (target, fields)

        # All are answered before one is read.
        async with contextlib.AsyncExitStack() as stack:
            responses = []
            for _ in range(30):
                stream = client.stream("GET", "/300000")
                responses.append(await stack.enter_async_context(stream))
            for body in await asyncio.gather(*(response.aread() for response in responses)):
                assert body == LARGE[:300000]
            for response in responses:
                note(response)

        # On one connection no number is given twice.
        assert streams == list(range(1, 2 * len(streams), 2)), streams

    async with httpx.AsyncClient(base_url=URL, verify=True, **options) as client:
        try:
            await client.get("/1000")
        except (httpx.ConnectError, ssl.SSLError) as error:
            assert "CERTIFICATE_VERIFY_FAILED" in str(error), error
        else:
            raise AssertionError("an authority that nobody knows was believed")


asyncio.run(main())
print("all as expected")
