// Package redisstore keeps the states of limits in Redis or Valkey, so that
// several machines share them: a [spillgate.Store] whose answers are those of
// memory, step for step.
package redisstore
