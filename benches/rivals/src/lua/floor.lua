-- The least that a decision takes: each key is read, and written with an expiry.
for at = 1, #keys do
  call('GET', keys[at])
  call('PSETEX', keys[at], '3600000', '1767225600000000000')
end
