//! The flow-control credit that is returned to the client (RFC 9113 §6.9).

use crate::server::h2::connection::Http2Connection;
use weft_proto::http2::frame;

impl Http2Connection {
    /// Credits discarded content to the window of a stream whose rest is read after all.
    pub(in crate::server::h2) fn credit_stream(&mut self, id: u32, bytes: usize) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.recv.release(bytes);
            self.update_stream_window(id);
        }
    }

    /// Credits processed bytes of any stream to the connection window.
    pub(super) fn credit_connection(&mut self, bytes: usize) {
        self.recv.release(bytes);
        if let Some(increment) = self.recv.take_update() {
            frame::window_update(self.writer.out(), 0, increment);
        }
    }

    pub(super) fn update_stream_window(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(id)
            && stream.state().is_receiving()
            && let Some(increment) = stream.recv.take_update()
        {
            frame::window_update(self.writer.out(), id, increment);
        }
    }

    /// Processes a stream whose pipe has changed: the application has read or written data.
    pub(super) fn on_pipe_changed(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        let Some(pipe) = &stream.pipe else { return };
        let read = pipe.take_read();
        stream.recv.release(read);
        self.credit_connection(read);
        self.update_stream_window(id);
        self.queue_tunnel_data(id);
        self.remove_if_done(id);
    }
}
