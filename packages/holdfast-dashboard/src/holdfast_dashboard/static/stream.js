// Follows a stream of server-sent events, and reconnects where the browser would give up.
const MIN_PAUSE_MS = 2000;
const MAX_PAUSE_MS = 30000;

// A browser has few connections to one server, so hidden tabs release theirs if `onlyVisible`.
export function follow(address, kind, onEvent, onConnectionChange, onlyVisible = false) {
  let source;
  let timer = 0;
  let pause = MIN_PAUSE_MS;
  const disconnect = () => {
    clearTimeout(timer);
    source?.close();
  };
  const connect = () => {
    disconnect();
    source = new EventSource(address);
    source.addEventListener(kind, onEvent);
    source.addEventListener("open", () => {
      pause = MIN_PAUSE_MS;
      onConnectionChange(true);
    });
    source.addEventListener("error", () => {
      onConnectionChange(false);
      // A response that is no stream, such as a proxy's error page, closes the source for good.
      if (source.readyState !== EventSource.CLOSED) return;
      timer = setTimeout(connect, pause);
      pause = Math.min(MAX_PAUSE_MS, pause * 2);
    });
  };
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", (event) => { if (event.persisted) connect(); });
  if (onlyVisible) document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
  if (!onlyVisible || !document.hidden) connect();
}
