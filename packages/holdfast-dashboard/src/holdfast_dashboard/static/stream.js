// Follows a stream of server-sent events, and reconnects where the browser would give up.
const MIN_PAUSE_MS = 2000;
const MAX_PAUSE_MS = 30000;

// Returns what ends it. `addressOf` is asked at each connection that this makes; those that the browser makes again by itself
// send the id of the last event. A browser has few connections to one server, so hidden tabs release theirs if `onlyVisible`.
export function follow(addressOf, listeners, onConnectionChange, onlyVisible = false) {
  const ended = new AbortController();
  const { signal } = ended;
  let source;
  let timer = 0;
  let pause = MIN_PAUSE_MS;
  const disconnect = () => {
    clearTimeout(timer);
    source?.close();
  };
  const connect = () => {
    disconnect();
    source = new EventSource(addressOf());
    for (const [kind, onEvent] of Object.entries(listeners)) source.addEventListener(kind, onEvent);
    source.addEventListener("open", () => {
      pause = MIN_PAUSE_MS;
      onConnectionChange(true);
    });
    source.addEventListener("error", () => {
      onConnectionChange(false);
      // A response that is no stream, such as a proxy's error page, closes the source for good.
      if (signal.aborted || source.readyState !== EventSource.CLOSED) return;
      timer = setTimeout(connect, pause);
      pause = Math.min(MAX_PAUSE_MS, pause * 2);
    });
  };
  signal.addEventListener("abort", disconnect);
  addEventListener("pagehide", disconnect, { signal });
  addEventListener("pageshow", (event) => { if (event.persisted) connect(); }, { signal });
  if (onlyVisible) document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()), { signal });
  if (!onlyVisible || !document.hidden) connect();
  return () => ended.abort();
}
