// Package redisstore keeps the states of limits in Redis, so that
// several machines share them: a [spillgate.Store] whose answers are those of
// memory, step for step, for every algorithm.
//
//	store, err := redisstore.New(rdb) // a *redis.Client or *redis.ClusterClient
//	seed, err := store.Seed(ctx)      // all machines digest keys alike
//	eng := policy.NewEngine(pol, store, policy.Seeded(seed))
//	store.CountNodes(func(n redisstore.Nodes) { eng.SetNodes(n.Count) })
//
// With leases ([spillgate.Leased]) most requests need no call; the example of
// [Store.CountNodes] shows how they go by the count, and rest until it is safe.
//
// All charges of a request are one round trip where their keys are in one slot and
// were written under the same limits, decided by one script on the server's clock.
// Requests that come while calls are under way are gathered into the next one; a lone
// one never waits. Every Take and Settle ends within its [Budget]. A
// server that does not answer is not asked again until a probe in the background
// is answered; until then every call is an error that wraps
// [spillgate.ErrUnavailable], which an Engine turns into what each rule says.
//
// What differs from memory: there is no cap on keys, so nothing overflows; each
// algorithm counts a key by itself, and so does not begin anew when it comes back
// after another one; a key counted under two limits at once may not be a log, or
// slots, under both; a limit that comes back after another one was in force is the
// same limit, not a second life of it; a settle of nothing leaves the TTL alone; a log
// or slots end when the limit that wrote them says, though a longer one may have come
// since.
package redisstore
