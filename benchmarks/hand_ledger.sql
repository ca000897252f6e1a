-- The ledger of a fleet whose allocations all name their GPU, as somebody would write it by hand for that case.
WITH gpu AS (
  SELECT device_id, node, accelerator, pool, coalesce(share, 1.0) AS share,
    greatest(coalesce(from_utc, :start), :start) AS s, least(coalesce(to_utc, :end), :end) AS e
  FROM devices
), priced AS (
  SELECT g.device_id, greatest(g.s, coalesce(p.from_utc, :start)) AS s, least(g.e, coalesce(p.to_utc, :end)) AS e, basis, price_per_gpu_hour AS cost
  FROM gpu g JOIN prices p ON (p.accelerator IS NULL OR p.accelerator = g.accelerator) AND (p.pool IS NULL OR p.pool = g.pool)
    AND (p.device_id IS NULL OR p.device_id = g.device_id)
    AND coalesce(p.from_utc, :start) < g.e AND coalesce(p.to_utc, :end) > g.s
), broken AS (
  SELECT g.device_id, greatest(o.from_utc, g.s) AS s, least(coalesce(o.to_utc, :end), g.e) AS e
  FROM outages o JOIN gpu g ON (o.device_id = g.device_id OR (o.device_id IS NULL AND o.node = g.node))
  WHERE o.from_utc < g.e AND coalesce(o.to_utc, :end) > g.s
), held AS (
  SELECT a.job_id, coalesce(a.attempt, 0.0) AS attempt, a.user, a.team, a.project, a.experiment_id, a.purpose, a.device_id,
    coalesce(a.gpus, 1.0) * coalesce(a.share, 1.0) * g.share AS gpus,
    greatest(a.from_utc, g.s) AS s, least(coalesce(a.to_utc, :end), g.e) AS e
  FROM allocations a JOIN gpu g USING (device_id) WHERE a.from_utc < g.e AND coalesce(a.to_utc, :end) > g.s
), cuts AS (
  SELECT device_id, s AS cut FROM gpu UNION SELECT device_id, e FROM gpu
  UNION SELECT device_id, s FROM priced UNION SELECT device_id, e FROM priced
  UNION SELECT device_id, s FROM broken UNION SELECT device_id, e FROM broken
  UNION SELECT device_id, s FROM held UNION SELECT device_id, e FROM held
), pieces AS (
  SELECT device_id, s, e, unnest(range(s // 86400000, (e - 1) // 86400000 + 1)) AS day
  FROM (SELECT device_id, cut AS s, lead(cut) OVER (PARTITION BY device_id ORDER BY cut) AS e FROM cuts) WHERE e IS NOT NULL
), held_days AS (SELECT *, unnest(range(s // 86400000, (e - 1) // 86400000 + 1)) AS day FROM held
), asked AS (
  SELECT h.* EXCLUDE (s, e, day), p.s, p.e, p.day, sum(gpus) OVER (PARTITION BY p.device_id, p.s, p.day) AS demand
  FROM pieces p JOIN held_days h ON h.device_id = p.device_id AND h.day = p.day AND h.s <= p.s AND h.e >= p.e
), demand AS (SELECT device_id, s, day, any_value(demand) AS demand FROM asked GROUP BY ALL
), there AS (
  SELECT p.device_id, p.s, p.e, p.day, g.node, g.accelerator, g.pool, g.share, coalesce(d.demand, 0.0) AS demand, b.device_id IS NOT NULL AS down
  FROM pieces p JOIN gpu g ON g.device_id = p.device_id AND g.s <= p.s AND g.e >= p.e
  LEFT JOIN demand d ON d.device_id = p.device_id AND d.s = p.s AND d.day = p.day
  LEFT JOIN broken b ON b.device_id = p.device_id AND b.s <= p.s AND b.e >= p.e
), cost AS (
  SELECT p.device_id, p.s, p.day, max(cost) FILTER (basis = 'contracted') AS contracted, max(cost) FILTER (basis = 'list') AS list
  FROM pieces p JOIN priced r ON r.device_id = p.device_id AND r.s <= p.s AND r.e >= p.e GROUP BY ALL
), rows AS (
  SELECT job_id, attempt, user, team, project, experiment_id, purpose, t.*, gpus * least(1.0, t.share / t.demand) AS gpus, true AS held
  FROM asked a JOIN there t ON t.device_id = a.device_id AND t.s = a.s AND t.day = a.day
  UNION ALL
  SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, *, share - least(demand, share), false FROM there WHERE share - least(demand, share) > 1e-9
), hours AS (
  SELECT *, greatest(s, day * 86400000, hour) AS f, least(e, (day + 1) * 86400000, hour + 3600000) AS t FROM (
    SELECT *, unnest(range(greatest(s, day * 86400000) // 3600000, (least(e, (day + 1) * 86400000) - 1) // 3600000 + 1)) * 3600000 AS hour FROM rows)
), spans AS MATERIALIZED (
  SELECT *, row_number() OVER () AS span FROM (SELECT DISTINCT device_id, hour, f, t FROM hours)
), bins AS (
  SELECT span, act < 0.05 AS idle, measured_mask, least(floor(act * 20)::INT, 19) AS activity_bin, throttle_mask & 252 > 0 AS throttled, mem_total_bytes,
    sum(ms) AS ms, max(mem_used_bytes) AS peak, sum(busy_share * ms) AS busy, sum(engine_active_share * ms) AS engine,
    sum(sm_active_share * ms) AS sm, sum(tensor_active_share * ms) AS tensor, sum(dram_active_share * ms) AS dram,
    sum(mem_used_bytes * ms) AS used, sum(power_w * ms) AS power
  FROM (SELECT p.span, c.*, coalesce(sm_active_share, engine_active_share, busy_share) AS act,
          (least(to_utc, t) - greatest(from_utc, f))::DOUBLE AS ms
        FROM samples c JOIN spans p ON c.device_id = p.device_id AND c.hour_utc = p.hour AND from_utc < t AND to_utc > f)
  GROUP BY ALL
), summed AS (
  SELECT span, idle, measured_mask, throttled, mem_total_bytes, sum(ms) AS ms, max(peak) AS peak, sum(busy) AS busy, sum(engine) AS engine,
    sum(sm) AS sm, sum(tensor) AS tensor, sum(dram) AS dram, sum(used) AS used, sum(power) AS power,
    sum(CASE WHEN activity_bin = 0 THEN ms ELSE 0.0 END) AS h00, sum(CASE WHEN activity_bin = 1 THEN ms ELSE 0.0 END) AS h01,
    sum(CASE WHEN activity_bin = 2 THEN ms ELSE 0.0 END) AS h02, sum(CASE WHEN activity_bin = 3 THEN ms ELSE 0.0 END) AS h03,
    sum(CASE WHEN activity_bin = 4 THEN ms ELSE 0.0 END) AS h04, sum(CASE WHEN activity_bin = 5 THEN ms ELSE 0.0 END) AS h05,
    sum(CASE WHEN activity_bin = 6 THEN ms ELSE 0.0 END) AS h06, sum(CASE WHEN activity_bin = 7 THEN ms ELSE 0.0 END) AS h07,
    sum(CASE WHEN activity_bin = 8 THEN ms ELSE 0.0 END) AS h08, sum(CASE WHEN activity_bin = 9 THEN ms ELSE 0.0 END) AS h09,
    sum(CASE WHEN activity_bin = 10 THEN ms ELSE 0.0 END) AS h10, sum(CASE WHEN activity_bin = 11 THEN ms ELSE 0.0 END) AS h11,
    sum(CASE WHEN activity_bin = 12 THEN ms ELSE 0.0 END) AS h12, sum(CASE WHEN activity_bin = 13 THEN ms ELSE 0.0 END) AS h13,
    sum(CASE WHEN activity_bin = 14 THEN ms ELSE 0.0 END) AS h14, sum(CASE WHEN activity_bin = 15 THEN ms ELSE 0.0 END) AS h15,
    sum(CASE WHEN activity_bin = 16 THEN ms ELSE 0.0 END) AS h16, sum(CASE WHEN activity_bin = 17 THEN ms ELSE 0.0 END) AS h17,
    sum(CASE WHEN activity_bin = 18 THEN ms ELSE 0.0 END) AS h18, sum(CASE WHEN activity_bin = 19 THEN ms ELSE 0.0 END) AS h19
  FROM bins GROUP BY ALL
), rest AS (
  SELECT s.span, t - f - coalesce(sampled, 0.0) AS ms FROM spans s
  LEFT JOIN (SELECT span, sum(ms) AS sampled FROM summed GROUP BY span) USING (span) WHERE t - f - coalesce(sampled, 0.0) > 0
), account AS (SELECT * FROM summed UNION ALL BY NAME SELECT span, 0 AS measured_mask, ms FROM rest
), numbered AS (SELECT h.*, p.span FROM hours h JOIN spans p USING (device_id, hour, f, t))
SELECT n.hour AS hour_utc, n.f AS from_utc, n.t AS to_utc,
  CASE WHEN held THEN CASE WHEN idle IS NULL THEN 'unobserved' WHEN idle THEN 'idle' ELSE 'busy' END WHEN down THEN 'down' ELSE 'unallocated' END AS state,
  n.device_id, node, accelerator, pool, job_id, attempt, user, team, project, experiment_id, purpose,
  measured_mask, throttled, mem_total_bytes, gpus * ms / 1000 AS gpu_s, gpus * busy / 1000 AS busy_s,
  gpus * engine / 1000 AS engine_active_s, gpus * sm / 1000 AS sm_active_s, gpus * tensor / 1000 AS tensor_active_s,
  gpus * dram / 1000 AS dram_active_s, gpus * used / 1000 AS mem_used_byte_s, gpus * power / 1000 AS energy_j,
  if(held AND idle IS NOT NULL, gpus * h00 / 1000, 0.0) AS hist_00_s, if(held AND idle IS NOT NULL, gpus * h01 / 1000, 0.0) AS hist_01_s,
  if(held AND idle IS NOT NULL, gpus * h02 / 1000, 0.0) AS hist_02_s, if(held AND idle IS NOT NULL, gpus * h03 / 1000, 0.0) AS hist_03_s,
  if(held AND idle IS NOT NULL, gpus * h04 / 1000, 0.0) AS hist_04_s, if(held AND idle IS NOT NULL, gpus * h05 / 1000, 0.0) AS hist_05_s,
  if(held AND idle IS NOT NULL, gpus * h06 / 1000, 0.0) AS hist_06_s, if(held AND idle IS NOT NULL, gpus * h07 / 1000, 0.0) AS hist_07_s,
  if(held AND idle IS NOT NULL, gpus * h08 / 1000, 0.0) AS hist_08_s, if(held AND idle IS NOT NULL, gpus * h09 / 1000, 0.0) AS hist_09_s,
  if(held AND idle IS NOT NULL, gpus * h10 / 1000, 0.0) AS hist_10_s, if(held AND idle IS NOT NULL, gpus * h11 / 1000, 0.0) AS hist_11_s,
  if(held AND idle IS NOT NULL, gpus * h12 / 1000, 0.0) AS hist_12_s, if(held AND idle IS NOT NULL, gpus * h13 / 1000, 0.0) AS hist_13_s,
  if(held AND idle IS NOT NULL, gpus * h14 / 1000, 0.0) AS hist_14_s, if(held AND idle IS NOT NULL, gpus * h15 / 1000, 0.0) AS hist_15_s,
  if(held AND idle IS NOT NULL, gpus * h16 / 1000, 0.0) AS hist_16_s, if(held AND idle IS NOT NULL, gpus * h17 / 1000, 0.0) AS hist_17_s,
  if(held AND idle IS NOT NULL, gpus * h18 / 1000, 0.0) AS hist_18_s, if(held AND idle IS NOT NULL, gpus * h19 / 1000, 0.0) AS hist_19_s,
  CASE WHEN held THEN peak / mem_total_bytes END AS mem_peak_share,
  u.contracted AS price_per_gpu_hour_contracted, u.list AS price_per_gpu_hour_list
FROM numbered n JOIN account USING (span) LEFT JOIN cost u ON u.device_id = n.device_id AND u.s = n.s AND u.day = n.day
ORDER BY hour_utc, n.device_id
