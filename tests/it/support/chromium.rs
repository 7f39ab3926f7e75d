//! A real headless browser, driven over pipes with its DevTools protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{PATIENCE, eventually};

/// Flags that keep the user's profile and the network out.
const FLAGS: [&str; 11] = [
    "--headless",
    "--remote-debugging-pipe",
    // As root, or in a container, the sandbox does not work. The browser only opens our own page.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--no-first-run",
    "--force-color-profile=srgb",
    // Grey anti-aliasing gives smaller pictures.
    "--disable-lcd-text",
];

/// A browser with one page.
pub struct Chromium {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: String,
    last: u64,
    problems: Vec<String>,
    _profile: TempDir,
}

impl Chromium {
    /// Opens the page in a window of this size.
    pub fn open(url: &str, width: u32, height: u32) -> Chromium {
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        // It reads commands from file descriptor 3 and answers on file descriptor 4.
        command.args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null", "sh", "chromium"]);
        command.args(FLAGS).arg(format!("--user-data-dir={}", profile.path().display()));
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), answers(child.stdout.take().unwrap()));
        let (session, problems) = (String::new(), Vec::new());
        let mut chromium = Chromium { child, to, from, session, last: 0, problems, _profile: profile };
        let target = chromium.ask("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = chromium.ask("Target.attachToTarget", attach);
        chromium.session = session["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log"] {
            chromium.ask(&format!("{domain}.enable"), json!({}));
        }
        chromium.resize(width, height);
        chromium.ask("Page.navigate", json!({"url": url}));
        chromium
    }

    pub fn resize(&mut self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.ask("Emulation.setDeviceMetricsOverride", size);
    }

    /// Sets the preferred colour scheme, `light` or `dark`.
    pub fn prefer(&mut self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.ask("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// The value of an expression in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.ask("Runtime.evaluate", asked);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer:#}");
        answer["result"]["value"].clone()
    }

    /// The visible text of the first element of a selector.
    pub fn text(&mut self, selector: &str) -> String {
        let value = self.value(&format!("document.querySelector({selector:?})?.innerText"));
        value.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the first element of a selector contains a text.
    pub fn shows(&mut self, selector: &str, text: &str) {
        let what = format!("{selector} shows {text:?}");
        let mut last = String::new();
        eventually(&what, || {
            last = self.text(selector);
            last.contains(text).then_some(())
        });
    }

    /// Clicks the middle of the first element of a selector.
    pub fn click(&mut self, selector: &str) {
        let middle = format!(
            "(() => {{ const e = document.querySelector({selector:?}); e.scrollIntoView({{block: 'center'}}); \
             const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()"
        );
        let at = self.value(&middle);
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1});
            self.ask("Input.dispatchMouseEvent", event);
        }
    }

    /// Types text into the focused element.
    pub fn type_text(&mut self, text: &str) {
        self.ask("Input.insertText", json!({"text": text}));
    }

    /// Presses a key that has a name: `Tab`, `Enter`, `Escape`.
    pub fn press(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            _ => panic!("no key that a test presses: {key}"),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code});
            if (kind, key) == ("keyDown", "Enter") {
                event["text"] = json!("\r");
            }
            self.ask("Input.dispatchKeyEvent", event);
        }
    }

    /// The visible part of the page, as a PNG in base64.
    pub fn screenshot(&mut self) -> String {
        let shot = self.ask("Page.captureScreenshot", json!({"format": "png"}));
        shot["data"].as_str().unwrap().to_owned()
    }

    /// Every colour of a picture, as `[count of pixels, "r,g,b"]`, the most frequent first.
    ///
    /// Another page reads the picture, because the security policy of ours forbids it.
    pub fn colours(&mut self, png: &str) -> Vec<(u64, String)> {
        self.ask("Page.navigate", json!({"url": "about:blank"}));
        let counted = self.value(&format!(
            "(async () => {{ const answer = await fetch('data:image/png;base64,{png}'); \
             const picture = await createImageBitmap(await answer.blob()); \
             const canvas = new OffscreenCanvas(picture.width, picture.height).getContext('2d'); \
             canvas.drawImage(picture, 0, 0); const counts = new Map(); \
             const {{ data }} = canvas.getImageData(0, 0, picture.width, picture.height); \
             for (let i = 0; i < data.length; i += 4) {{ const c = data.slice(i, i + 3).join(); \
             counts.set(c, (counts.get(c) || 0) + 1); }} \
             return [...counts].map(([c, n]) => [n, c]).sort((a, b) => b[0] - a[0]); }})()"
        ));
        serde_json::from_value(counted).unwrap()
    }

    /// The problems of the page so far: script errors, and violations of its security policy.
    pub fn problems(&mut self) -> Vec<String> {
        self.value("0");
        self.problems.clone()
    }

    fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let mut asked = json!({"id": self.last, "method": method, "params": parameters});
        if !self.session.is_empty() {
            asked["sessionId"] = json!(self.session);
        }
        self.to.write_all(format!("{asked}\0").as_bytes()).unwrap();
        loop {
            let heard = self.from.recv_timeout(PATIENCE);
            let mut heard =
                heard.unwrap_or_else(|error| panic!("chromium does not answer {method}: {error}"));
            if heard["id"] == self.last {
                assert!(heard.get("error").is_none(), "{method}: {heard:#}");
                return heard["result"].take();
            }
            match heard["method"].as_str() {
                Some("Runtime.exceptionThrown") => self.problems.push(heard["params"].to_string()),
                Some("Log.entryAdded") if heard["params"]["entry"]["level"] == "error" => {
                    self.problems.push(heard["params"]["entry"].to_string());
                }
                _ => {}
            }
        }
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // A browser that is asked to close ends its child processes, too.
        let _ = self.to.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let ended = (0..500).any(|_| {
            thread::sleep(std::time::Duration::from_millis(10));
            self.child.try_wait().is_ok_and(|ended| ended.is_some())
        });
        if !ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Reads messages, each terminated by a zero byte.
fn answers(from: impl Read + Send + 'static) -> Receiver<Value> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for message in BufReader::new(from).split(0) {
            let Ok(Ok(message)) = message.map(|bytes| serde_json::from_slice(&bytes)) else { return };
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Decodes base64.
pub fn bytes_of(base64: &str) -> Vec<u8> {
    let digit = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::new();
    for four in base64.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = four.iter().fold(0, |bits, &letter| bits << 6 | u32::from(digit(letter)));
        let bits = bits << (6 * (4 - four.len()));
        bytes.extend(&bits.to_be_bytes()[1..four.len()]);
    }
    bytes
}
