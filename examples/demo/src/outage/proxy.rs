//! A TCP proxy whose link can be cut.

use std::time::Duration;

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    pin,
    sync::watch,
    time::sleep,
};

use super::Link;

const PAUSE: Duration = Duration::from_millis(100);

/// Passes connections on to the server, as long as the switch exists.
pub(super) async fn run(listener: TcpListener, server: String, mut link: watch::Receiver<Link>) {
    loop {
        // New connections wait in the kernel while the link is frozen.
        if link.wait_for(|link| *link != Link::Frozen).await.is_err() {
            return;
        }
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            changed = link.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        match accepted {
            Ok((client, _)) => drop(tokio::spawn(pass(client, server.clone(), link.clone()))),
            // As when this process has too many files open.
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Passes bytes both ways while the link is up, until one side ends or the link is closed.
async fn pass(mut client: TcpStream, server: String, mut link: watch::Receiver<Link>) {
    let copy = async {
        if let Ok(mut server) = TcpStream::connect(server).await {
            let _ = client.set_nodelay(true);
            let _ = server.set_nodelay(true);
            let _ = copy_bidirectional(&mut client, &mut server).await;
        }
    };
    pin!(copy);
    loop {
        let now = *link.borrow_and_update();
        match now {
            Link::Closed => return,
            Link::Frozen => {
                if link.changed().await.is_err() {
                    return;
                }
            }
            Link::Up => tokio::select! {
                () = &mut copy => return,
                changed = link.changed() => if changed.is_err() { return },
            },
        }
    }
}
