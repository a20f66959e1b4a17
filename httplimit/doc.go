// Package httplimit limits a net/http handler. [New] puts one limit in front
// of it, [Policy] a whole policy:
//
//	http.ListenAndServe(":8080", httplimit.New(lim, httplimit.User(userOf), httplimit.ClientIP())(mux))
//	http.ListenAndServe(":8080", httplimit.Policy(eng)(mux))
//
// Nothing that a client sends is believed unasked: its address is that of the
// peer until [TrustedProxies] names the proxies that may say otherwise, and a
// user is whoever the program's own function says.
//
// # What a refused client is told
//
//	status                    when
//	429 Too Many Requests     a quota is used up, or the cost is above what ever fits
//	403 Forbidden             a rule denies by itself, or wants an attribute that is missing
//	503 Service Unavailable   nothing could be decided: a fault of ours, never told as a denial
//	400 Bad Request           the request's own numbers gave a negative cost ([Cost]), or
//	                          its body broke off, or was malformed, before the cost could be
//	                          told ([policy.Usage]),
//	                          or what tells callers apart comes several times ([policy.RepeatedError]),
//	                          or it may be taken for so much at once that too many rules apply ([policy.OddError])
//	408 Request Timeout       the body did not come in time for that ([BodyStall])
//	499                       the client went away while it waited (for logs; nobody reads it)
//	500 Internal Server Error a rule that the store can't carry out
//
// 429 carries Retry-After: whole seconds, always enough for a caller who is
// alone with the quota, and, without [Jitter], less than a second too long. Only
// of slots it is mostly too long: when requests under way end nobody knows, so it
// tells when slots expire that nobody gives back. It is the longest wait of all
// rules that refuse. Where no wait helps there is none, and the
// body says so. 413 is not used for a cost that never fits: it is the quota
// that is too small for the request, not the server for its content.
//
// The fields RateLimit-Policy and RateLimit follow
// draft-ietf-httpapi-ratelimit-headers-11 (on HTTP/1.1 Go spells their names
// Ratelimit-Policy and Ratelimit, which is the same to HTTP): one item for each
// rule that applied, those that refuse first, rules on trial and rules without
// a quota left out. For a bucket q is the burst and w the time to earn a whole
// one; r is what is left now and t the time until the quota is whole again,
// which is not the time to wait: that is Retry-After. All numbers of a response
// come from one decision. While the store is at fault there are no such
// numbers, and the fields are left out.
//
// The body is a problem (RFC 9457) of one of the types that the same draft
// registers: quota-exceeded, with the names of the violated policies, or
// temporary-reduced-capacity, or plain text for a client whose Accept prefers
// that. It carries an id that the field Spillgate-Refusal has too, and the log
// line, if there is one: of a flood not all refusals are logged ([Logger]). A rule may answer otherwise ([policy.Answer]), hold the request until it
// fits ([policy.Delay]), or send it to another handler ([Backup]). [Dialects]
// adds the fields of GitHub, OpenAI and Envoy, [Jitter] spreads those who come
// back.
//
// A call of gRPC or gRPC-Web is told the same in a status of gRPC, with 200 in place
// of these and whatever a rule says of its answer ([Refusal.Code], [AnswerGRPC]).
//
// At a stop those who are held are told to come again if the program closes the
// engine, as with server.RegisterOnShutdown(eng.Close), or the limiter of [New].
//
// A refusal does not wait for the request's body. If that has not come whole
// within a tenth of a second, the connection ends with the answer ([Unread]). A stream
// of HTTP/2 stays open for as long after it ([Linger]), since some clients lose an
// answer that comes with the stream's end.
//
// # Inside the handler
//
// Behind [Policy], [policy.FromContext] gives the verdict under which a request
// runs (not behind [New], which decides without a policy): how much
// is left, what was spent in truth, what is given back. When the handler
// returns the verdict is settled: rules that count only failures learn the
// status, those of the unit "bytes" the size of the answer's body, what a
// [policy.Usage] speaks of is corrected to what the answer says, and slots are
// freed. What the handler has settled by itself stays. A connection that the
// handler takes over (Hijack) holds its slots, and its bytes count, until it is
// closed, also if the handler returned before.
package httplimit
