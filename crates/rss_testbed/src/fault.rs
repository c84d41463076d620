//! How an answer is broken, and which.

use bytes::Bytes;

use crate::front::Service;

/// What is done to an answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// Answers with a status and no data.
    Status {
        /// The status.
        code: u16,
        /// The value of `Retry-After`, if any.
        retry_after: Option<String>,
        /// The body; HTML, JSON or XML by what it starts with.
        body: String,
    },
    /// Never answers.
    Hang,
    /// Sends headers and up to 10 bytes, never more than half of the body, then nothing.
    HangInBody,
    /// Sends half of the body, then drops the connection.
    Cut,
    /// Sends half of the body with a matching `Content-Length`; `Content-Range` promises all.
    Short,
    /// Sends a `Content-Range` that starts one byte late, with the right body.
    ShiftedHeader,
    /// Sends a `Content-Range` and a body that start one byte late.
    ShiftedBody,
    /// Sends a `Content-Range` whose length of the whole object is so many bytes off.
    Total(i64),
    /// Leaves `Content-Range` out of a 206.
    NoContentRange,
    /// Answers a range with 200 and the whole object.
    WholeObject,
    /// Answers 200 with an error of S3 as the body.
    ErrorInOk,
    /// Sends 100 bytes more than were asked for.
    Longer,
    /// Sends the right number of wrong bytes.
    Garbage,
    /// Replaces the object by these bytes, then answers as usual.
    Replace(Bytes),
    /// Answers 200 with a page of HTML.
    Html,
    /// Redirects.
    Redirect {
        /// The status, such as 301.
        code: u16,
        /// The new address; none leaves the header out.
        location: Option<String>,
        /// The value of `x-amz-bucket-region`, if any.
        region: Option<String>,
    },
    /// Sends so many bytes per second.
    Drip(u64),
}

impl Fault {
    /// Returns a bare status.
    pub fn status(code: u16) -> Self {
        Self::Status {
            code,
            retry_after: None,
            body: String::new(),
        }
    }

    /// Returns a status that asks to wait so many seconds.
    pub fn retry_after(code: u16, seconds: u64) -> Self {
        Self::Status {
            code,
            retry_after: Some(seconds.to_string()),
            body: String::new(),
        }
    }

    /// Returns S3's way to say that it is too busy.
    pub fn slow_down() -> Self {
        Self::Status {
            code: 503,
            retry_after: None,
            body: "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>SlowDown</Code>\
                   <Message>Please reduce your request rate.</Message></Error>"
                .to_owned(),
        }
    }
}

/// Which answers are broken, and how.
#[derive(Clone, Debug)]
#[must_use]
pub struct Rule {
    pub(crate) fault: Fault,
    service: Option<Service>,
    method: Option<String>,
    path: String,
    skip: u64,
    times: u64,
}

impl Rule {
    /// Breaks every answer from now on.
    pub fn new(fault: Fault) -> Self {
        Self {
            fault,
            service: None,
            method: None,
            path: String::new(),
            skip: 0,
            times: u64::MAX,
        }
    }

    /// Only answers of one service.
    pub fn on(mut self, service: Service) -> Self {
        self.service = Some(service);
        self
    }

    /// Only answers to one method.
    pub fn method(mut self, method: &str) -> Self {
        self.method = Some(method.to_owned());
        self
    }

    /// Only answers whose path holds this text.
    pub fn path(mut self, part: &str) -> Self {
        part.clone_into(&mut self.path);
        self
    }

    /// Lets the first `n` of them through.
    pub fn skip(mut self, n: u64) -> Self {
        self.skip = n;
        self
    }

    /// Breaks `n` of them, then heals.
    pub fn times(mut self, n: u64) -> Self {
        self.times = n;
        self
    }

    /// Returns the fault if this request is to be broken, and counts it.
    pub(crate) fn take(&mut self, service: Service, method: &str, path: &str) -> Option<Fault> {
        let fits = self.service.is_none_or(|wanted| wanted == service)
            && self.method.as_ref().is_none_or(|wanted| wanted == method)
            && path.contains(&self.path);
        if !fits || self.times == 0 {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.times -= 1;
        Some(self.fault.clone())
    }
}
