"""A request with aioquic. usage: aioquic_client.py ADDRESS PATH OUTPUT full|resumed|early"""

import asyncio
import ssl
import sys
from collections import deque

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration


class Client(QuicConnectionProtocol):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.http = H3Connection(self._quic)
        self.events = deque()
        self.done = asyncio.get_event_loop().create_future()

    def quic_event_received(self, event):
        for received in self.http.handle_event(event):
            self.events.append(received)
            if getattr(received, "stream_ended", False) and not self.done.done():
                self.done.set_result(None)

    async def get(self, authority, path):
        stream = self._quic.get_next_available_stream_id()
        head = [(":method", "GET"), (":scheme", "https"), (":authority", authority), (":path", path)]
        self.http.send_headers(stream, [(a.encode(), b.encode()) for a, b in head], end_stream=True)
        self.transmit()
        await asyncio.wait_for(self.done, 60)
        status, content = None, b""
        for event in self.events:
            if isinstance(event, HeadersReceived) and status is None:
                status = dict(event.headers)[b":status"]
            elif isinstance(event, DataReceived):
                content += event.data
        assert status == b"200", status
        return content


async def request(address, path, tickets, ticket, is_early):
    host, port = address.rsplit(":", 1)
    configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN)
    configuration.verify_mode = ssl.CERT_NONE
    configuration.server_name = "localhost"
    configuration.session_ticket = ticket
    async with connect(
        host,
        int(port),
        configuration=configuration,
        create_protocol=Client,
        session_ticket_handler=tickets.append,
        wait_connected=not is_early,
    ) as client:
        content = await client.get(address, path)
        if ticket is not None:
            assert client._quic.tls.session_resumed, "not resumed"
        if is_early:
            assert client._quic.tls.early_data_accepted, "no early data"
        return content


async def main():
    address, path, output, mode = sys.argv[1:]
    tickets = []
    content = await request(address, path, tickets, None, False)
    if mode != "full":
        content = await request(address, path, [], tickets[0], mode == "early")
    with open(output, "wb") as file:
        file.write(content)


asyncio.run(main())
