//! rmcp: a server of the Model Context Protocol over HTTP, whose responses are event streams.

use http_body_util::BodyExt;
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{ServerCapabilities, ServerConfig};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ServerHandler, schemars, tool, tool_handler, tool_router};
use serde_json::{Value, json};

use crate::client::HttpClient;
use crate::{address, serve};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Numbers {
    a: i32,
    b: i32,
}

#[derive(Clone)]
struct Calculator {
    tool_router: ToolRouter<Calculator>,
}

#[tool_router]
impl Calculator {
    #[tool(description = "Adds two numbers")]
    fn sum(&self, Parameters(Numbers { a, b }): Parameters<Numbers>) -> String {
        (a + b).to_string()
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Calculator {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

/// Sends a message. Returns the session and the first event that is a message.
async fn post(client: &HttpClient, session: &str, message: Value) -> (String, Option<Value>) {
    let accept = "application/json, text/event-stream";
    let mut fields = vec![("content-type", "application/json"), ("accept", accept)];
    if !session.is_empty() {
        fields.push(("mcp-session-id", session));
    }
    let response = client.send("POST /", &fields, &message.to_string()).await;
    assert!(response.status().is_success(), "{response:?}");
    let session =
        response.headers().get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
    let (mut body, mut text) = (response.into_body(), String::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.unwrap();
        text.push_str(
            std::str::from_utf8(frame.data_ref().unwrap_or(&Default::default())).unwrap(),
        );
        let complete = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        let data = complete.lines().find_map(|line| line.strip_prefix("data: {"));
        if let Some(data) = data {
            let message = serde_json::from_str(&format!("{{{data}")).unwrap();
            return (session.unwrap_or_default(), Some(message));
        }
    }
    (session.unwrap_or_default(), None)
}

#[tokio::test]
async fn tools_of_a_session() {
    let service: StreamableHttpService<Calculator, LocalSessionManager> =
        StreamableHttpService::new(
            || Ok(Calculator { tool_router: Calculator::tool_router() }),
            Default::default(),
            StreamableHttpServerConfig::default(),
        );
    // was: axum::serve(listener, Router::new().fallback_service(service))
    let server = serve(weft::tower::app(service));
    for client in HttpClient::each(address(&server)) {
        let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-03-26", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        }});
        let (session, response) = post(&client, "", initialize).await;
        assert_eq!(response.unwrap()["id"], 1);
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(post(&client, &session, initialized).await.1, None);
        let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
            "name": "sum", "arguments": { "a": 1, "b": 2 },
        }});
        let (_, response) = post(&client, &session, call).await;
        assert_eq!(response.unwrap()["result"]["content"][0]["text"], "3");
    }
}
