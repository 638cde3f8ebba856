//! Drops a future after so many polls: what happens to every future of a program sooner or later.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// How long a future that is not woken waits for its next poll. Any future may be polled for nothing; without
/// that, one that waits for ever could not be dropped after its second poll.
const UNASKED: Duration = Duration::from_millis(1);

/// Polls a future up to `polls` times, then drops it; its output if it came that far.
pub async fn drop_after<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    for left in (0..polls).rev() {
        let polled = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
        if left > 0 {
            // Between two polls everybody else goes on, as in a program.
            tokio::time::sleep(UNASKED).await;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn three_polls() -> u32 {
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        3
    }

    #[tokio::test]
    async fn a_future_is_dropped_after_its_last_poll() {
        for polls in 0..3 {
            assert_eq!(drop_after(polls, three_polls()).await, None);
        }
        assert_eq!(drop_after(3, three_polls()).await, Some(3));
    }
}
