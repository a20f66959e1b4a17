package redisstore

type refusals struct{}

func (r *refusals) size() int { return 0 }
