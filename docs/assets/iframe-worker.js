// Browsers refuse workers on pages opened from disk. Run the theme's search worker in a hidden frame instead: the theme
// uses the class IFrameWorker if a script named iframe-worker defines it. On a server this file does nothing.
if (location.protocol === "file:") {
  const loadScript = (document, url) =>
    new Promise((resolve, reject) => {
      const script = document.createElement("script")
      script.src = url
      script.onload = resolve
      script.onerror = reject
      document.body.append(script)
    })

  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)

      const scope = frame.contentWindow
      scope.document.open()
      scope.document.write("<body></body>")
      scope.document.close()
      scope.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      scope.importScripts = async (...urls) => {
        for (const each of urls) await loadScript(scope.document, each)
      }
      this.scope = scope
      this.ready = loadScript(scope.document, url)
    }

    postMessage(data) {
      this.ready.then(() => this.scope.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}
