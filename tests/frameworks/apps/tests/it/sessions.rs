//! tower-sessions and axum-login with axum.

use std::convert::Infallible;

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum_login::{AuthManagerLayerBuilder, AuthUser, AuthnBackend, login_required};
use tower_sessions::{MemoryStore, Session, SessionManagerLayer};

use crate::client::HttpClient;
use crate::{address, serve};

#[derive(Clone, Debug)]
struct User(String);

impl AuthUser for User {
    type Id = String;

    fn id(&self) -> String {
        self.0.clone()
    }

    fn session_auth_hash(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Users whose name is also their password.
#[derive(Clone)]
struct Users;

impl AuthnBackend for Users {
    type User = User;
    type Credentials = (String, String);
    type Error = Infallible;

    async fn authenticate(
        &self,
        (name, password): (String, String),
    ) -> Result<Option<User>, Infallible> {
        Ok((name == password).then_some(User(name)))
    }

    async fn get_user(&self, name: &String) -> Result<Option<User>, Infallible> {
        Ok(Some(User(name.clone())))
    }
}

type AuthSession = axum_login::AuthSession<Users>;

async fn login(
    mut session: AuthSession,
    Path(credentials): Path<(String, String)>,
) -> Result<&'static str, StatusCode> {
    let user = session.authenticate(credentials).await.unwrap();
    session.login(&user.ok_or(StatusCode::UNAUTHORIZED)?).await.unwrap();
    Ok("welcome")
}

async fn private(auth: AuthSession, session: Session) -> String {
    let visits = session.get::<u32>("visits").await.unwrap().unwrap_or_default() + 1;
    session.insert("visits", visits).await.unwrap();
    format!("{} {visits}", auth.user.unwrap().0)
}

async fn logout(mut session: AuthSession) {
    session.logout().await.unwrap();
}

#[tokio::test]
async fn login_visits_and_logout() {
    let sessions = SessionManagerLayer::new(MemoryStore::default()).with_secure(false);
    let router = Router::new()
        .route("/private", get(private))
        .route_layer(login_required!(Users))
        .route("/login/{name}/{password}", post(login))
        .route("/logout", post(logout))
        .layer(AuthManagerLayerBuilder::new(Users, sessions).build());
    // was: axum::serve(listener, router)
    let server = serve(weft::axum::app(router));
    for client in HttpClient::each(address(&server)) {
        assert_eq!(client.get("/private").await.status, 401);
        assert_eq!(client.fetch("POST /login/ada/no", &[], "").await.status, 401);
        let reply = client.fetch("POST /login/ada/ada", &[], "").await;
        assert_eq!(reply.text, "welcome");
        let cookie = reply.fields["set-cookie"].to_str().unwrap().split(';').next().unwrap();
        let fields = [("cookie", cookie)];
        for visit in 1..=2 {
            let reply = client.fetch("GET /private", &fields, "").await;
            assert_eq!(reply.text, format!("ada {visit}"));
        }
        assert_eq!(client.fetch("POST /logout", &fields, "").await.status, 200);
        assert_eq!(client.fetch("GET /private", &fields, "").await.status, 401);
    }
}
