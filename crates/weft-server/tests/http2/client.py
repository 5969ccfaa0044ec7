"""Fetches the files served by http2.rs with httpx and prints a line if all responses are correct.

Arguments: the URL of the server, and the certificate of the authority that signed its certificate.
"""

import asyncio
import contextlib
import ssl
import sys

import httpx

URL, CA_CERTIFICATE = sys.argv[1:]

# All files are prefixes of the same bytes, whose period is no power of two.
LARGE = bytes(index % 251 for index in range(20 << 20))

# Target, method and request fields; expected status and body (None: not compared).
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
    # These requests do not use a proxy from the environment.
    options = {"http2": True, "trust_env": False, "timeout": 60}
    async with httpx.AsyncClient(base_url=URL, verify=CA_CERTIFICATE, **options) as client:
        streams = []

        def record_stream(response):
            assert response.http_version == "HTTP/2", response.http_version
            streams.append(response.extensions["stream_id"])

        for target, method, fields, status, body in CASES:
            response = await client.request(method, target, headers=fields)
            record_stream(response)
            assert response.status_code == status, (target, fields, response.status_code)
            assert body is None or response.content == body, (target, fields)

        # All response heads are received before the first body is read.
        async with contextlib.AsyncExitStack() as stack:
            responses = []
            for _ in range(30):
                stream = client.stream("GET", "/300000")
                responses.append(await stack.enter_async_context(stream))
            for body in await asyncio.gather(*(response.aread() for response in responses)):
                assert body == LARGE[:300000]
            for response in responses:
                record_stream(response)

        # Stream identifiers of one connection are odd, consecutive and never reused.
        assert streams == list(range(1, 2 * len(streams), 2)), streams

    async with httpx.AsyncClient(base_url=URL, verify=True, **options) as client:
        try:
            await client.get("/1000")
        except (httpx.ConnectError, ssl.SSLError) as error:
            assert "CERTIFICATE_VERIFY_FAILED" in str(error), error
        else:
            raise AssertionError("a certificate of an unknown authority was accepted")


asyncio.run(main())
print("all as expected")
