// Questions to the search: Material matches beginnings of words, so "a" would match every "abstract". Leave out words
// that say nothing, and the s of plurals.
const SILENT = new Set(("a about an and any are as at be by can cannot could did do does for from get has have how i if in into is it its " +
  "may me much my no not of on one or should so some that the them there they this to up use used using want was we what when where " +
  "which who why will with without work would you your").split(" "))
const post = Worker.prototype.postMessage
Worker.prototype.postMessage = function (message, ...rest) {
  if (message && message.type === 2 && typeof message.data === "string") {
    const words = message.data.toLowerCase().split(/[\s?!,;-]+/).filter(word => word && !SILENT.has(word))
    if (words.length) message = { ...message, data: words.map(word => word.replace(/(\w{3}[^su])s$/, "$1")).join(" ") }
  }
  return post.call(this, message, ...rest)
}
