// Package client is the other end of a limit: round trippers that obey what
// servers tell them, and that pace a program's own calls.
//
// A [Transport] reads what an answer says of limits ([Read]), waits as long as
// it was told, within the bounds of its [Patience], and asks again:
//
//	http.Client{Transport: &client.Transport{}}
//
// A [Pacer] keeps the program's own calls below a limit, so that they are not
// refused in the first place. The two go together, the pacer inside:
//
//	pacer := &client.Pacer{Limiter: spillgate.Must("5/s")}
//	http.Client{Transport: &client.Transport{Base: pacer}}
//
// # What is asked again
//
// Only what was refused for its rate: an answer 429 or 503, or 403 where
// it says besides that a quota is used up or when to come back, as GitHub's do.
// Never an error of the network.
//
//   - Requests that may be sent twice: GET, HEAD, OPTIONS, TRACE, PUT, DELETE,
//     and whatever carries an Idempotency-Key.
//   - Others (POST, PATCH) only if the answer was 429 or 503 and had a readable
//     Retry-After. Such an answer is given in place of the work (RFC 6585, 4; RFC
//     9110, 15.6.4), and says itself that the request shall come again. A server
//     that does half of the work and then answers so needs a Transport with
//     Tries: 1.
//   - Neither if the request has a body that can't be had again: one without
//     GetBody, which http.NewRequest sets for buffers and strings.
//
// If nothing is to be done, because the wait is too long, or the tries are used
// up, or the context would end before, the caller gets the answer as it came,
// at once.
package client
